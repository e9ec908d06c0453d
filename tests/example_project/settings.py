"""The settings of the example on the databases of the test that starts the process."""

from __future__ import annotations

import os

# On PostgreSQL the suite's own server is in DATABASE_URL; no other one is to be started.
os.environ.setdefault("OJS_DEMO_DATABASE", "sqlite")

from example_project.settings import *  # noqa: F403 - all but the databases
from example_project.settings import INSTALLED_APPS as OF_THE_EXAMPLE
from tests.databases import DATABASES as DATABASES
from tests.databases import KIND

INSTALLED_APPS = [
    *OF_THE_EXAMPLE,
    *{"mariadb": ["django_ojs.contrib.mariadb"]}.get(KIND, []),
]
