"""The PostgreSQL that all share: databases, the harness's own statements, the server's CPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from example_project import embedded_server
from tests.benchmarks import processes

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "var" / "bench"

#: Set for every child: where the server is, and which database a contender has.
URL_VARIABLE = "DATABASE_URL"
NAME_VARIABLE = "OJS_BENCH_DATABASE"


class Server:
    """The server of `DATABASE_URL`, else the embedded one with the durability it is born with."""

    def __init__(self) -> None:
        url = os.environ.get(URL_VARIABLE)
        if not url:
            url = os.environ[URL_VARIABLE] = embedded_server.start(HOME / "postgresql")
        self.url = url
        self._connections: dict[str, psycopg.Connection[Any]] = {}
        self._created: list[str] = []
        self._postmaster = self._find_postmaster()

    def create(self, name: str, template: str = "template1") -> str:
        """Make an empty database, or a copy, and return its name."""
        self.drop(name)
        self._detach(template)
        self.run(
            "postgres",
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(name), sql.Identifier(template)
            ),
        )
        self._created.append(name)
        return name

    def drop(self, name: str) -> None:
        """Drop a database that may exist."""
        self._detach(name)
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        self.run("postgres", drop)

    def close(self) -> None:
        """Drop what this run created."""
        for name in self._created:
            self.drop(name)
        for connection in self._connections.values():
            connection.close()

    def run(
        self,
        database: str,
        statement: str | sql.Composable,
        parameters: Sequence[Any] | None = None,
    ) -> list[tuple[Any, ...]]:
        """Run one statement in autocommit, and return its rows."""
        connection = self._connections.get(database)
        if connection is None or connection.closed:
            connection = psycopg.connect(
                make_conninfo(self.url, dbname=database), autocommit=True, prepare_threshold=None
            )
            self._connections[database] = connection
        cursor = connection.execute(statement, parameters)  # type: ignore[arg-type]  # a str is one
        return cursor.fetchall() if cursor.description else []

    def settle(self, database: str) -> None:
        """Give every round the same start: fresh statistics, and no dirty pages waiting."""
        self.run(database, "VACUUM ANALYZE")
        self.run(database, "CHECKPOINT")

    def cpu(self) -> float | None:
        """Return the seconds the server has computed, or None where that cannot be seen."""
        return processes.cpu(self._postmaster) if self._postmaster else None

    def facts(self) -> dict[str, str]:
        """Return the version and the settings that decide what a commit costs."""
        names = ("server_version", "fsync", "synchronous_commit", "shared_buffers")
        return {name: str(self.run("postgres", f"SHOW {name}")[0][0]) for name in names}

    def _detach(self, name: str) -> None:
        connection = self._connections.pop(name, None)
        if connection is not None:
            connection.close()

    def _find_postmaster(self) -> int | None:
        # Only on this machine, and only where its files may be read.
        folder = Path(self.run("postgres", "SHOW data_directory")[0][0])
        try:
            return int((folder / "postmaster.pid").read_text().split("\n", 1)[0])
        except OSError:
            return None


def parameters(database: str) -> dict[str, Any]:
    """Return the keyword arguments of a connection, for drivers that read no URL of ours."""
    return conninfo_to_dict(make_conninfo(os.environ[URL_VARIABLE], dbname=database))
