"""A publication of all tables, and a subscriber that has what the publisher has."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection

import django_ojs as ojs
from django_ojs.models import Job
from django_ojs.storage.figures import counts
from tests import fork_server
from tests.databases import ALIASES
from tests.factories import connected_to
from tests.faults.cluster import Cluster, own_cluster
from tests.worker.acceptance.conftest import Start
from tests.worker.acceptance.conftest import start as start
from tests.worker.processes import ROOT
from tests.worker.waiting import BOUND, eventually

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.postgresql,
    pytest.mark.slow,
]

JOBS = 60


def connect(settings: dict[str, Any], name: str) -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(
        host=settings["HOST"], user=settings["USER"], dbname=name, autocommit=True
    )


def tables(link: psycopg.Connection[tuple[Any, ...]]) -> list[str]:
    found = link.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
    return [str(name) for (name,) in found]


@pytest.fixture
def publisher(process_environment: dict[str, str]) -> Iterator[tuple[Cluster, dict[str, str]]]:
    """Return a server whose database is published whole, and the environment to work on it."""
    with own_cluster(wal_level="logical") as server:
        environment = {
            **process_environment,
            "DJANGO_SETTINGS_MODULE": "tests.faults.settings",
            "OJS_FAULTS_DATABASE": json.dumps(server.settings),
        }
        command = [sys.executable, "manage.py", "migrate", "--verbosity=0"]
        fork_server.run(command, cwd=ROOT, env=environment, check=True, timeout=BOUND)
        with connected_to(server.settings):
            yield server, environment


@pytest.fixture
def subscriber(
    publisher: tuple[Cluster, dict[str, str]],
) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """Subscribe an empty database of the same schema to all tables."""
    settings = publisher[0].settings
    with connect(settings, "template1") as link:
        link.execute("CREATE DATABASE subscriber TEMPLATE postgres")
    with connect(settings, "postgres") as link:
        link.execute("CREATE PUBLICATION everything FOR ALL TABLES")
        # Beforehand, because the subscriber is on the same server.
        link.execute("SELECT pg_create_logical_replication_slot('copy', 'pgoutput')")
    with connect(settings, "subscriber") as link:
        link.execute(f"TRUNCATE {', '.join(tables(link))}")
        link.execute(
            f"CREATE SUBSCRIPTION copy CONNECTION 'host={settings['HOST']} user=postgres"
            " dbname=postgres' PUBLICATION everything WITH (create_slot = false)"
        )
        try:
            yield link
        finally:
            link.execute("DROP SUBSCRIPTION copy")


def unfolded() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM ojs_count_change")
        return int(cursor.fetchone()[0])


def rows(link: psycopg.Connection[tuple[Any, ...]], table: str) -> list[str]:
    return sorted(str(row) for row in link.execute(f"SELECT t::text FROM {table} AS t"))


def test_jobs_run_and_the_subscriber_has_all_that_the_publisher_has(
    publisher: tuple[Cluster, dict[str, str]],
    subscriber: psycopg.Connection[tuple[Any, ...]],
    start: Start,
) -> None:
    cluster, environment = publisher
    tree = start("--threads", "4", ojs={"KEEP_EVENTS": ["*"]}, **environment).ready()
    for number in range(JOBS):
        ojs.enqueue("worker.quick", [number])
    eventually(lambda: Job.objects.filter(state="completed").count() == JOBS, "all jobs ran")
    eventually(lambda: not unfolded(), "the changes are folded into the counts")
    tree.process.terminate()
    assert tree.ends() == 0
    assert "replica identity" not in tree.log
    assert "does not respond" not in tree.log
    assert not counts.differences()
    with connect(cluster.settings, "postgres") as source:
        names = tables(source)
        assert {"ojs_job", "ojs_count", "ojs_count_change", "ojs_event"} <= set(names)
        for name in names:
            eventually(
                lambda name=name: rows(subscriber, name) == rows(source, name),  # type: ignore[misc]  # mypy has no inference for a default
                f"{name} is replicated",
                within=30,
            )
