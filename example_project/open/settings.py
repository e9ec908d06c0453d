"""Settings of the open server. It does not run without DEBUG, which OJS_DEMO_DEBUG=1 turns on."""

import os

from example_project.open import database

os.environ["DATABASE_URL"] = database.url()

from example_project.settings import *  # noqa: F403  # it opens the database named above
from example_project.settings import INSTALLED_APPS, MIDDLEWARE

INSTALLED_APPS = [*INSTALLED_APPS, "example_project.open"]
MIDDLEWARE = ["example_project.open.middleware.loopback_only", *MIDDLEWARE]
ROOT_URLCONF = "example_project.open.urls"

OJS = {
    "HTTP_AUTHENTICATION": ["django_ojs.http.authentication.AllowAny"],
    "KEEP_EVENTS": ["*"],
    # Test suites of clients often use a new queue for each test.
    "HTTP_MAX_NAMES": 1_000_000,
}
SILENCED_SYSTEM_CHECKS = ["django_ojs.W002"]  # An open API is what this is for.
# A 404 is for the client that gets it; here it would hide the errors.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "loggers": {"django.request": {"level": "ERROR"}},
}
