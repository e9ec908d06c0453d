"""Settings of a remote site: the suite's other database is its own."""

from __future__ import annotations

from tests.worker.settings import *  # noqa: F403 - the suite's settings, and what the test asks for

# Unlike a worker, it serves requests.
ROOT_URLCONF = "tests.urls"
INSTALLED_APPS.insert(0, "django.contrib.admin")  # noqa: F405
DATABASES = {"default": DATABASES["other"]}  # noqa: F405 - from the star
OJS = {"HTTP_AUTHENTICATION": ["django_ojs.http.authentication.AllowAny"]}
