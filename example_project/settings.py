"""Django settings of the example shop.

The database comes from `embedded_postgres`: a PostgreSQL of its own by default, `DATABASE_URL` for
yours, and SQLite with `OJS_DEMO_DATABASE=sqlite`.
"""

import os
from pathlib import Path
from typing import Any

import django

from example_project.embedded_postgres import database_settings
from example_project.shop import labels

ROOT = Path(__file__).resolve().parent.parent

# Not a secret: this site listens on 127.0.0.1 only and its data is made up.
SECRET_KEY = "example-project-key-for-127.0.0.1-only"
# Off by default: workers then run without the autoreloader, and Django keeps no query log.
DEBUG = os.environ.get("OJS_DEMO_DEBUG") == "1"
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "drf_spectacular_sidecar",
    "django_ojs",
    "django_ojs.extensions.checkpoints",
    "django_ojs.extensions.cron",
    "django_ojs.extensions.limits",
    "django_ojs.extensions.outbox",
    "django_ojs.extensions.steps",
    "django_ojs.extensions.tenants",
    "django_ojs.extensions.webhooks",
    "django_ojs.extensions.workflows",
    "example_project.shop",
    "example_project.job_orders",
]
if django.VERSION < (6, 0):
    INSTALLED_APPS.append("django_tasks")  # The backport of django.tasks.

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "example_project.urls"
WSGI_APPLICATION = "example_project.wsgi.application"

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES: dict[str, Any] = {"default": database_settings()}
# To connect anew for each request would be most of what the API does.
DATABASES["default"]["CONN_MAX_AGE"] = 60

#: Everything the shop writes (PDFs, e-mails, worker logs); safe to delete. A folder for each kind
#: of database: a demonstration on SQLite leaves the invoices of one on PostgreSQL where they are.
VAR_DIR = (
    Path(os.environ.get("OJS_DEMO_VAR") or ROOT / "var")
    / (DATABASES["default"]["ENGINE"].rpartition(".")[2])
)

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LANGUAGE_CODE = "en-gb"
TIME_ZONE = "UTC"
USE_TZ = True

STATIC_URL = "static/"
MEDIA_URL = "media/"
MEDIA_ROOT = VAR_DIR / "media"

STORAGES: dict[str, Any] = {
    "default": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        # An invoice that is drawn again replaces itself.
        "OPTIONS": {"allow_overwrite": True},
    },
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}

_MAILER = "example_project.shop.mail.ReceiptFileBackend"
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": _MAILER}}
else:
    EMAIL_BACKEND = _MAILER
RECEIPT_FOLDER = VAR_DIR / "mail"
DEFAULT_FROM_EMAIL = "The Corner Kitchen <shop@example.com>"

#: Tasks of `django.tasks`, the shop's and those of any package, commit with the caller's rows.
TASKS = {"default": {"BACKEND": "django_ojs.tasks.OJSBackend"}}

#: Short beats, so that a killed worker is missed soon. A bound for each queue: far above what the
#: demonstration places, far below what would fill the disk.
OJS: dict[str, Any] = {
    "HEARTBEAT_INTERVAL": 1,
    "QUEUES": {
        queue: {"backpressure": {"max_depth": 1_000_000}}
        for queue in (
            *("payments", "labels", "collections", "mail"),
            *("documents", "workshop", "default"),
        )
    },
}
# The carrier's API allows no more, whatever the number of workers and their language.
OJS["QUEUES"]["labels"] |= {
    "concurrency": labels.MAX_CONCURRENT,
    "rate_limit": {"limit": labels.MAX_PER_SECOND, "period": "PT1S"},
}
