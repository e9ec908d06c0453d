"""Atomic handlers whose transactions are SERIALIZABLE, or REPEATABLE READ."""

from __future__ import annotations

import json

import pytest
from django.db import connection

import django_ojs as ojs
from django_ojs.models import Attempt
from tests.databases import ALIASES
from tests.faults.conftest import Report
from tests.faults.site import Site
from tests.testapp.models import Thing

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.postgresql,
    pytest.mark.slow,
]

JOBS = 300
REPEATABLE_READ, SERIALIZABLE = 3, 4


@pytest.mark.parametrize("level", [REPEATABLE_READ, SERIALIZABLE])
@pytest.mark.parametrize("reads", [False, True], ids=["stores", "changes"])
def test_jobs_that_share_no_row_are_all_completed(
    site: Site, level: int, reads: bool, report: Report
) -> None:
    things: list[list[int]] = [[] for _ in range(JOBS)]
    if reads:
        made = Thing.objects.bulk_create(Thing(name=f"row {n}") for n in range(JOBS))
        things = [[thing.pk] for thing in made]
    ojs.enqueue_batch([ojs.request("faults.own_row", key) for key in things])
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    options = connection.settings_dict["OPTIONS"] | {"isolation_level": level}
    site.start("--threads", "8", OJS_FAULTS_DATABASE=json.dumps({"OPTIONS": options})).ready()
    site.drained()
    assert site.jobs.filter(state="completed").count() == JOBS
    assert Thing.objects.filter(name__startswith="effect ").count() == JOBS
    conflicts = Attempt.objects.count()
    report(f"{conflicts} conflicts of {JOBS} jobs")
    if not reads or level == REPEATABLE_READ:
        # The worker's own statements cause none. Of a small table the handler reads all pages.
        assert not conflicts


@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
def test_a_conflict_gives_the_job_back_without_spending_an_attempt(
    site: Site, sqlstate: str
) -> None:
    ways = ["in a statement", "at the commit", "chained", "after it"]
    jobs = {way: ojs.enqueue("faults.conflicts_once", [sqlstate, way]).id for way in ways}
    tree = site.start("--threads", "1").ready()
    site.drained()
    for way, key in jobs.items():
        job = site.jobs.get(pk=key)
        assert (job.state, job.attempt, job.run, job.spent) == ("completed", 2, 2, 1), way
        (run,) = job.attempts.all()
        assert run.outcome == "returned"
        assert "spends no attempt" in run.error["message"]
    assert tree.log.count("conflicted with another transaction after") == len(ways)
    assert not Thing.objects.exists()
