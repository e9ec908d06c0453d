"""Settings of the test suite: two aliases of the database that `OJS_TEST_DATABASE` names."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.databases import DATABASES as DATABASES
from tests.databases import KIND

SECRET_KEY = "only for the tests"
USE_TZ = True
TIME_ZONE = "UTC"
# Django 6.1 warns where a mail is sent without it; the versions before do not know it.
MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ALLOWED_HOSTS = ["*"]
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "drf_spectacular_sidecar",
    "django_ojs",
    *{"mariadb": ["django_ojs.contrib.mariadb"]}.get(KIND, []),
    "django_ojs.extensions.checkpoints",
    "django_ojs.extensions.cron",
    "django_ojs.extensions.limits",
    "django_ojs.extensions.outbox",
    "django_ojs.extensions.steps",
    "django_ojs.extensions.tenants",
    "django_ojs.extensions.webhooks",
    "django_ojs.extensions.workflows",
    "example_project.shop",
    "tests.testapp",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
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
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"
MEDIA_URL = "media/"
# The shop reads it; its tests write to a folder of their own.
VAR_DIR = Path(tempfile.gettempdir()) / "ojs-test-var"
# Hashing is not what is tested here.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# Workers of these tests send heartbeats more often than a busy machine can. And where the tests run
# on MariaDB, it is known how far its support is.
SILENCED_SYSTEM_CHECKS = ["django_ojs.W010", *{"mariadb": ["django_ojs.W006"]}.get(KIND, [])]
# Tests of the API's operations ask as anybody; tests of who may do what say who asks.
OJS = {"HTTP_AUTHENTICATION": ["django_ojs.http.authentication.AllowAny"]}
