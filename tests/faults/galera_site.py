"""The jobs on a Galera cluster: its nodes for a test's own statements and for its processes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections

from tests import fork_server
from tests.faults.site import Site
from tests.galera_cluster import Cluster, Node, cluster
from tests.worker.processes import ROOT
from tests.worker.waiting import BOUND

#: The database of the jobs.
NAME = "ojs_jobs"
VARIABLE = "OJS_FAULTS_DATABASE"


@contextmanager
def migrated_cluster() -> Iterator[Cluster]:
    """Start a cluster with the tables of the project."""
    with cluster() as made:
        first = made.nodes[0]
        first.query(f"CREATE DATABASE {NAME}")
        environment = {
            **os.environ,
            VARIABLE: json.dumps(made.settings(first, NAME)),
            "DJANGO_SETTINGS_MODULE": "tests.faults.http_settings",
        }
        command = [sys.executable, "manage.py", "migrate", "--verbosity=0", "--skip-checks"]
        fork_server.run(command, cwd=ROOT, env=environment, check=True, timeout=BOUND * 4)
        yield made


@contextmanager
def on(node: Node, **options: Any) -> Iterator[None]:
    """Let this thread's connection be one to a node."""
    kept = connections["default"]
    link = connections.create_connection("default")
    values = {"HOST": "127.0.0.1", "PORT": str(node.port), "NAME": NAME}
    link.settings_dict = {**kept.settings_dict, **values}
    link.settings_dict["OPTIONS"] = {**kept.settings_dict["OPTIONS"], **options}
    connections["default"] = link
    try:
        yield
    finally:
        link.close()
        connections["default"] = kept


def processes_on(site: Site, made: Cluster, node: Node, *, others: bool = False) -> None:
    """Let the processes that a site starts from now on have their jobs on a node."""
    site.variables[VARIABLE] = json.dumps(made.settings(node, NAME, others=others))


def empty(node: Node) -> None:
    """Empty the tables of the jobs, and wait until every node has that."""
    tables = [name for (name,) in node.query("SHOW TABLES", NAME)]
    # The triggers of the jobs write to the other tables.
    for table in sorted(tables, key=lambda name: name != "ojs_job"):
        if (table.startswith("ojs_") and table != "ojs_lock") or table == "testapp_thing":
            node.query(f"SET STATEMENT foreign_key_checks = 0 FOR DELETE FROM {table}", NAME)
