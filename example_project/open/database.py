"""A database for one run, which no other program uses: a reset empties it."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from example_project import embedded_server

#: Not DATABASE_URL, which may name a database in use.
VARIABLE = "OJS_OPEN_DATABASE_URL"


def url() -> str:
    """Return the URL of the database that the variable names, else of a new and empty one.

    It is left in the environment, so that child processes use the same one.
    """
    if VARIABLE not in os.environ:
        home = Path(tempfile.mkdtemp(prefix="ojs-open-"))
        if os.environ.get("OJS_DEMO_DATABASE") == "sqlite":
            atexit.register(shutil.rmtree, home, ignore_errors=True)
            os.environ[VARIABLE] = f"sqlite:///{home / 'open.sqlite3'}"
        else:
            os.environ[VARIABLE] = embedded_server.start(home, throwaway=True)
    return os.environ[VARIABLE]
