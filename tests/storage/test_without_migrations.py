"""A project's tests that run without migrations have the functions and triggers nevertheless."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection

from django_ojs.storage.figures import counts
from django_ojs.storage.schema import create_missing
from tests.factories import push
from tests.worker.processes import ROOT

SETTINGS = """\
from tests.settings import *

TESTS = {{"NAME": {name!r}, "MIGRATE": {migrate}}}
DATABASES = {{"default": DATABASES["default"] | {{"TEST": TESTS}}}}
INSTALLED_APPS = [
    *("django.contrib.contenttypes", "django.contrib.auth", "django_ojs"),
    *(name for name in INSTALLED_APPS if name.startswith("django_ojs.contrib.")),
]
OJS = {{"QUEUES": {{"small": {{"backpressure": {{"max_depth": 3}}}}}}}}
"""

TEST = """\
import django_ojs as ojs
import pytest
from django_ojs.operations import ack, fetch
from django_ojs.spec.errors import QueueFull
from django_ojs.storage.figures import counts


@pytest.mark.django_db
def test_a_job_is_enqueued_claimed_and_completed():
    job = ojs.enqueue("a.job", [1])
    ojs.enqueue_batch([ojs.request("a.job", [n], queue="small") for n in range(3)])
    with pytest.raises(QueueFull):
        ojs.enqueue("a.job", [1], queue="small")
    (claimed,) = fetch.fetch(["default"], worker_id="w")
    ack.ack(claimed.id)
    counts.fold()
    assert counts.by_queue(["default"])["default"] == {"completed": 1}
    assert not counts.differences()


@pytest.mark.django_db(transaction=True)
def test_after_a_flush_too():
    ojs.enqueue("a.job", [1])
    assert not counts.differences()


@pytest.mark.django_db(transaction=True)
def test_and_after_another_one():
    assert counts.by_queue() == {}
"""


@pytest.mark.process
@pytest.mark.smoke
@pytest.mark.slow
@pytest.mark.parametrize(
    ("migrate", "arguments"),
    # Django turns both into the same, so that each is tried on one database.
    [
        pytest.param(True, ["--nomigrations"], marks=[pytest.mark.postgresql, pytest.mark.mariadb]),
        pytest.param(False, [], marks=pytest.mark.sqlite),
    ],
    ids=["pytest --nomigrations", "TEST MIGRATE False"],
)
def test_a_project_tests_without_migrations(
    migrate: bool, arguments: list[str], tmp_path: Path, process_environment: dict[str, str]
) -> None:
    name = f"test_unmigrated_{secrets.token_hex(4)}"
    if connection.vendor == "sqlite":
        name = str(tmp_path / f"{name}.sqlite3")
    (tmp_path / "unmigrated.py").write_text(SETTINGS.format(name=name, migrate=migrate))
    (tmp_path / "test_jobs.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "--create-db", *arguments, str(tmp_path)),
            # Its import takes longer than the test.
            *("-p", "no:schemathesis"),
        ],
        cwd=tmp_path,
        env={
            **process_environment,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)]),
            "DJANGO_SETTINGS_MODULE": "unmigrated",
            # Plugins of this run, which the other project may not find.
            "PYTEST_ADDOPTS": "",
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert not done.returncode, done.stdout + done.stderr
    assert "3 passed" in done.stdout


@pytest.mark.django_db(transaction=True)
def test_what_is_missing_is_created_again_and_the_counts_are_repaired() -> None:
    queue = push().queue
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("DROP TRIGGER ojs_job_count_truncate ON ojs_job")
            cursor.execute("DROP TRIGGER ojs_job_count_insert ON ojs_job")
        else:
            cursor.execute("DROP TRIGGER ojs_job_count_delete")
            cursor.execute("DROP TRIGGER ojs_job_count_insert")
    push(queue=queue)
    assert counts.differences()
    create_missing("default")
    assert not counts.differences()
    push(queue=queue)
    assert counts.depth(queue) == 3
