"""Settings of the worker processes that tests start: the suite's, and what the test asks for."""

from __future__ import annotations

import faulthandler
import json
import os
import signal

from tests.settings import *  # noqa: F403 - the suite's settings, whatever they are

DEBUG = os.environ.get("OJS_TEST_DEBUG") == "1"
OJS = json.loads(os.environ.get("OJS_TEST_OJS", "{}"))
if "OJS_TEST_LOGGING" in os.environ:
    LOGGING = json.loads(os.environ["OJS_TEST_LOGGING"])
# The admin and the API are half of what a process imports, and the suite starts some hundred.
ROOT_URLCONF = "tests.worker.urls"
INSTALLED_APPS.remove("django.contrib.admin")  # noqa: F405 - from the star
INSTALLED_APPS += json.loads(os.environ.get("OJS_TEST_APPS", "[]"))  # noqa: F405

# `kill -USR1` shows where each thread is, when a worker hangs in a test.
faulthandler.register(signal.SIGUSR1)
