"""A project with nothing but django_ojs, on the SQLite file that OJS_RELEASE_DATABASE names."""

from __future__ import annotations

import os

SECRET_KEY = "only for the tests"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "django_ojs"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["OJS_RELEASE_DATABASE"],
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
    }
}
