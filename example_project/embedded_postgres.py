"""Which database: `DATABASE_URL`, SQLite by one setting, else the embedded PostgreSQL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import dj_database_url
from django.core.exceptions import ImproperlyConfigured

from example_project import embedded_server

ROOT = Path(__file__).resolve().parent.parent


def database_settings() -> dict[str, Any]:
    """Return the demo's `DATABASES["default"]`.

    `DATABASE_URL` wins; else `OJS_DEMO_DATABASE=sqlite` takes a file; else the embedded server
    starts, and its URL is left in the environment, so that child processes use the same one.
    """
    if url := os.environ.get("DATABASE_URL"):
        return from_url(url)
    if os.environ.get("OJS_DEMO_DATABASE") == "sqlite":
        return sqlite_settings(ROOT / "demo.sqlite3")
    url = os.environ["DATABASE_URL"] = embedded_server.start(ROOT / ".postgres")
    return from_url(url)


def from_url(url: str) -> dict[str, Any]:
    """Return Django's settings for a `postgresql://` or `sqlite:///` URL.

    Raises ImproperlyConfigured for anything else; the message never holds the URL.
    """
    try:
        parsed = dict(dj_database_url.parse(url))
    except ValueError:
        raise ImproperlyConfigured(
            "DATABASE_URL: must be a URL such as postgresql://user:password@host:5432/name or "
            "sqlite:///path, with special characters percent-encoded"
        ) from None
    engine = parsed["ENGINE"]
    if engine == "django.db.backends.sqlite3":
        return sqlite_settings(str(parsed["NAME"]))
    if engine != "django.db.backends.postgresql":
        raise ImproperlyConfigured("DATABASE_URL: the scheme must be postgresql or sqlite")
    return parsed


def sqlite_settings(path: Path | str) -> dict[str, Any]:
    """Return Django's settings for a SQLite file that threads and processes write to at once."""
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(path),
        "OPTIONS": {
            # A transaction that reads first and writes later cannot wait for its turn otherwise.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    }
