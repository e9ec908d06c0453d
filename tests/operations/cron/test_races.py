"""Several schedulers at once, and one that dies: each occurrence enqueues one job."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest
from django.db.models.functions import Now

from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.cron import storage as cron_jobs
from django_ojs.extensions.cron.models import CronJob
from django_ojs.spec.errors import Conflict
from django_ojs.storage import database
from tests.factories import jobs
from tests.operations.cron.scenes import DefinitionFactory, events, make_due, register
from tests.threads import at_once
from tests.worker.waiting import BOUND, eventually

pytestmark = pytest.mark.django_db(transaction=True)

SCHEDULERS = 6
ROUNDS = 4


@pytest.mark.requirement("CRON-21")
def test_a_scheduler_moves_on_only_what_is_as_it_read_it() -> None:
    register("c")
    due = make_due("c")
    with database.atomic():
        (row,) = cron_jobs.lock_as_read({"c": due})
        row.due_at = due + timedelta(hours=1)
        cron_jobs.store([row], [])
    with database.atomic():
        assert cron_jobs.lock_as_read({"c": due}) == []
    assert cron.get("c").due_at == due + timedelta(hours=1)


def test_of_many_schedulers_one_fires_each_occurrence(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"c{n}" for n in range(20)]
    for name in names:
        register(name, overlap_policy="allow")
    all_have_read = threading.Barrier(SCHEDULERS)
    lock_as_read = cron_jobs.lock_as_read

    def lock_together(due: Mapping[str, datetime]) -> list[CronJob]:
        all_have_read.wait(BOUND)
        return lock_as_read(due)

    # On SQLite they have the write lock here, one after the other.
    if not database.dialect().has_one_writer:
        monkeypatch.setattr(cron_jobs, "lock_as_read", lock_together)
    for number in range(1, ROUNDS + 1):
        make_due(*names)
        fired = at_once([cron.fire_due] * SCHEDULERS)
        assert sum(fired) == len(names)
        assert not CronJob.primary.filter(due_at__lte=Now()).exists()
        assert jobs().count() == number * len(names)
    assert set(CronJob.primary.values_list("run_count", flat=True)) == {ROUNDS}
    assert len(events("cron.triggered")) == ROUNDS * len(names)


def test_a_run_that_is_asked_for_while_schedulers_fire_overlaps_with_none() -> None:
    register("c")
    make_due("c")

    def ask() -> int:
        try:
            cron.trigger("c", by="anna")
        except Conflict:
            return 0
        return 1

    at_once([cron.fire_due, ask, cron.fire_due, ask])
    assert jobs().count() == 1


def test_a_name_that_many_register_at_once_is_one_cron_job() -> None:
    made = at_once([lambda: cron.register(DefinitionFactory(name="c"))] * SCHEDULERS)
    assert sum(is_new for _, is_new in made) == 1
    assert CronJob.primary.count() == 1


_DIES = """
import os, signal
import django
django.setup()
from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.cron import storage as cron_jobs

def die(cron_jobs, runs):
    from django_ojs.models import Job
    assert Job.primary.count() == 1, "the job is stored, and not committed"
    os.kill(os.getpid(), signal.SIGKILL)

cron_jobs.store = die
cron.fire_due()
"""


@pytest.mark.smoke
@pytest.mark.requirement("CRON-22")
def test_a_scheduler_that_is_killed_before_its_commit_has_done_nothing(
    process_environment: dict[str, str],
) -> None:
    register("c")
    due = make_due("c")
    ended = subprocess.run(
        [sys.executable, "-c", _DIES], env=process_environment, capture_output=True, text=True
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert cron.get("c").due_at == due
    assert not jobs().exists()
    # The server holds the lock of a killed process until it sees that its connection has ended.
    assert eventually(cron.fire_due, "the schedule is fired") == 1
    assert jobs().count() == 1
    assert len(events()) == 1
