"""The databases of a test run: a server or folder of its own, shared with its child processes."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

from example_project import embedded_server
from example_project.embedded_postgres import from_url, sqlite_settings
from tests import mariadb_server

KIND = os.environ.get("OJS_TEST_DATABASE", "postgresql")
ALIASES = ("default", "other")
#: A file system in memory, and how many bytes a server may write to it.
MEMORY, ROOM = "/dev/shm", 4 << 30
# For the processes that tests start: "default=<name>,other=<name>" of the test databases.
NAMES_VARIABLE = "OJS_TEST_DATABASE_NAMES"


def _postgresql() -> dict[str, Any]:
    url = os.environ.get("DATABASE_URL")
    if not url:
        # The first process of the run starts it; xdist's workers and other children find the URL.
        home = Path(tempfile.mkdtemp(prefix="ojs-test-", dir=_memory()))
        url = os.environ["DATABASE_URL"] = embedded_server.start(home, throwaway=True)
    server = from_url(url)
    if server["ENGINE"] != "django.db.backends.postgresql":
        raise RuntimeError("DATABASE_URL: must be PostgreSQL when OJS_TEST_DATABASE=postgresql")
    return {alias: deepcopy(server) | {"TEST": {"NAME": f"test_ojs_{alias}"}} for alias in ALIASES}


def _memory() -> str | None:
    """Return a folder in memory that has room for a server, where there is one.

    To empty a table is to make new files, one for each index: a third of the server's work on disk.
    """
    with suppress(OSError, AttributeError):
        room = os.statvfs(MEMORY)
        if room.f_bavail * room.f_frsize > ROOM and os.access(MEMORY, os.W_OK):
            return MEMORY
    return None


def _sqlite() -> dict[str, Any]:
    folder = os.environ.get("OJS_TEST_SQLITE_FOLDER")
    if not folder:
        folder = os.environ["OJS_TEST_SQLITE_FOLDER"] = tempfile.mkdtemp(
            prefix="ojs-test-", dir=_memory()
        )
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return {
        alias: sqlite_settings(Path(folder) / f"{alias}.sqlite3")
        | {"TEST": {"NAME": str(Path(folder) / f"test_{alias}.sqlite3")}}
        for alias in ALIASES
    }


def _mariadb() -> dict[str, Any]:
    socket = os.environ.get("OJS_TEST_MARIADB_SOCKET")
    if not socket:
        # As for PostgreSQL: the other processes of the run find the socket.
        home = Path(tempfile.mkdtemp(prefix="ojs-test-", dir=_memory()))
        socket = os.environ["OJS_TEST_MARIADB_SOCKET"] = mariadb_server.start(home)
    return {
        alias: mariadb_settings(socket, f"ojs_{alias}") | {"TEST": {"NAME": f"test_ojs_{alias}"}}
        for alias in ALIASES
    }


def mariadb_settings(socket: str, name: str) -> dict[str, Any]:
    """Return Django's settings for a database of the server that listens on a socket."""
    return {
        "ENGINE": "django.db.backends.mysql",
        "NAME": name,
        "USER": "root",
        "HOST": socket,
        "OPTIONS": {
            "charset": "utf8mb4",
            "isolation_level": "read committed",
            # What Django writes by the clock of the database is in the time zone of the session.
            "init_command": "SET time_zone = '+00:00'",
        },
    }


_KINDS = {"postgresql": _postgresql, "sqlite": _sqlite, "mariadb": _mariadb}
KINDS = tuple(_KINDS)


def _databases() -> dict[str, Any]:
    if KIND not in _KINDS:
        raise RuntimeError(f"OJS_TEST_DATABASE: must be one of {', '.join(_KINDS)}")
    databases = _KINDS[KIND]()
    if names := os.environ.get(NAMES_VARIABLE):
        for alias, name in (pair.split("=", 1) for pair in names.split(",")):
            databases[alias]["NAME"] = name
    return databases


DATABASES = _databases()
