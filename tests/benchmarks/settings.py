"""Django settings of every process of the benchmarks: one contender each."""

from __future__ import annotations

import os

from example_project.embedded_postgres import from_url
from tests.benchmarks import contenders
from tests.benchmarks.contenders.base import VARIABLE
from tests.benchmarks.server import NAME_VARIABLE, URL_VARIABLE

SECRET_KEY = "only for the benchmarks"
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        **from_url(os.environ[URL_VARIABLE]),
        "NAME": os.environ[NAME_VARIABLE],
        "CONN_MAX_AGE": None,
    }
}
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth"]
# It sets Content-Length; without it a connection could be kept open only with chunks.
MIDDLEWARE = ["django.middleware.common.CommonMiddleware"]
ALLOWED_HOSTS = ["127.0.0.1"]
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
}

_additions = contenders.by_name(os.environ[VARIABLE]).django_settings()
INSTALLED_APPS += _additions.pop("INSTALLED_APPS", [])
globals().update(_additions)
