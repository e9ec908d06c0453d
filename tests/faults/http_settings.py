"""Settings of a site whose API the fault tests call: it keeps its connections, and serves pages."""

from __future__ import annotations

from tests.faults.settings import *  # noqa: F403 - another database, and the suite's settings

ROOT_URLCONF = "tests.urls"
INSTALLED_APPS.insert(0, "django.contrib.admin")  # noqa: F405 - from the star
DATABASES["default"]["CONN_MAX_AGE"] = 600  # noqa: F405 - from the star
OJS["HTTP_AUTHENTICATION"] = ["django_ojs.http.authentication.AllowAny"]  # noqa: F405
