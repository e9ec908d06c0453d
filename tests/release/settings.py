"""All apps of django_ojs and no others, on the SQLite file that OJS_RELEASE_DATABASE names."""

from __future__ import annotations

import os

SECRET_KEY = "only for the tests"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django_ojs",
    "django_ojs.extensions.checkpoints",
    "django_ojs.extensions.cron",
    "django_ojs.extensions.limits",
    "django_ojs.extensions.outbox",
    "django_ojs.extensions.steps",
    "django_ojs.extensions.tenants",
    "django_ojs.extensions.webhooks",
    "django_ojs.extensions.workflows",
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["OJS_RELEASE_DATABASE"],
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
    }
}
