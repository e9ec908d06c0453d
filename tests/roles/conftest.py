"""The roles of the page for this database, created by the statements of that page."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import pytest
from django.db import connection

from tests.docs.pages import ROOT, blocks

IS_MARIADB = connection.vendor == "mysql"
NAME = "database-roles-on-mariadb.md" if IS_MARIADB else "database-roles.md"
PAGE = ROOT / "docs" / "how-to" / NAME
#: On the page.
PASSWORD = {"PASSWORD": "secret"} if IS_MARIADB else {}
#: Roles belong to the server, which processes of a test run share.
SUFFIX = secrets.token_hex(4)


def named(text: str) -> str:
    """Replace the names of the page's roles by those of this run."""
    return re.sub(r"\bsite_(web|worker|relay)\b", rf"site_\1_{SUFFIX}", text)


def variables(role: str) -> dict[str, str]:
    """Return the environment of a process that connects as a role (see tests.faults.settings)."""
    return {
        "DJANGO_SETTINGS_MODULE": "tests.faults.settings",
        "OJS_FAULTS_DATABASE": json.dumps({"USER": named(role)} | PASSWORD),
    }


def execute(statements: str) -> None:
    # A driver of MariaDB takes one at a time.
    with connection.cursor() as cursor:
        for statement in filter(str.strip, statements.split(";")):
            cursor.execute(statement)


Blocks = dict[str, list[str]]


@pytest.fixture
def page() -> Blocks:
    """Return the page's SQL for this database, by the heading above it."""
    found: Blocks = {}
    lines = PAGE.read_text().splitlines()
    for block in blocks(PAGE):
        above = reversed(lines[: block.line])
        heading = next(line for line in above if line.startswith("## ")).removeprefix("## ")
        found.setdefault(heading, []).append(named(block.text))
    return found


@pytest.fixture
def roles(transactional_db: None, page: Blocks) -> Iterator[Blocks]:
    """Create the three roles with the rights of the page; those for HTTP and the admin later."""
    created = [named(f"site_{each}") for each in ("web", "worker", "relay")]
    try:
        for heading in ("The site", "Workers", "A relay"):
            execute(page[heading][0])
        yield page
    finally:
        with connection.cursor() as cursor:
            for role in created:
                if IS_MARIADB:
                    cursor.execute(f"DROP USER IF EXISTS {role}")
                    continue
                cursor.execute("SELECT FROM pg_roles WHERE rolname = %s", [role])
                if cursor.fetchone() is not None:
                    cursor.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


class AsRole(Protocol):
    """In its block this thread connects as a role; `assumed` is Django's `assume_role`."""

    def __call__(self, role: str, assumed: str | None = None) -> AbstractContextManager[None]: ...


@pytest.fixture
def as_role() -> AsRole:
    """Return a context manager in which this thread connects as a role."""

    @contextmanager
    def connected(role: str, assumed: str | None = None) -> Iterator[None]:
        settings = connection.settings_dict
        kept = {name: settings[name] for name in ("USER", "PASSWORD", "OPTIONS")}
        connection.close()
        settings |= {"USER": named(role)} | PASSWORD
        if assumed is not None:
            settings["OPTIONS"] = {**settings["OPTIONS"], "assume_role": named(assumed)}
        try:
            yield
        finally:
            connection.close()
            settings.update(kept)

    return connected
