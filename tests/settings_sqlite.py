"""The settings of both projects for tools that only read them (mypy, makemigrations).

No server is started and no folder made: mypy leaves without the clean-up of a normal exit.
"""

from __future__ import annotations

import os
import tempfile

os.environ["OJS_TEST_DATABASE"] = "sqlite"
os.environ.setdefault("OJS_TEST_SQLITE_FOLDER", tempfile.gettempdir())

from tests.settings import *  # noqa: F403 - the variables decide what this imports

for database in DATABASES.values():  # noqa: F405 - from the star
    database["NAME"] = ":memory:"
    database["OPTIONS"] = {}
# The shop reads it.
RECEIPT_FOLDER = tempfile.gettempdir()
