"""Settings of the processes that the fault tests start: another database, a sabotage."""

from __future__ import annotations

import json
import os

from tests.worker.settings import *  # noqa: F403 - the worker tests' settings, and through them the suite's

# Where the jobs are, when that is not the suite's own database (see `cluster`, `bouncer`).
DATABASES["default"].update(  # noqa: F405 - from the star
    json.loads(os.environ.get("OJS_FAULTS_DATABASE", "{}"))
)
# What goes wrong in this process (see `sabotage`).
OJS_SABOTAGE = json.loads(os.environ.get("OJS_FAULTS_SABOTAGE", "{}"))
INSTALLED_APPS += ["tests.faults.sabotage.Sabotage"]  # noqa: F405 - from the star
