"""Very many jobs are due at once, and very many leases lapse: the others do not wait for it."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F, Max, Min
from django.db.models.functions import Now

from django_ojs.models import Job
from django_ojs.operations import fetch
from django_ojs.spec.states import State
from django_ojs.storage.figures import counts
from tests.databases import ALIASES
from tests.factories import HOUR, push, push_many
from tests.faults.conftest import FULL, Report
from tests.faults.site import Site
from tests.worker.waiting import eventually

BURST = 300_000 if FULL else 3_000
LAPSED = 50_000 if FULL else 1_500

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.slow,
    pytest.mark.sized,
    pytest.mark.timeout(1800),
]


def all_available(queue: str, *, instead_of: State) -> None:
    """Wait until no job of a queue is in its old state."""
    eventually(
        lambda: not counts.by_queue([queue])[queue].get(instead_of),
        "all are available",
        within=600,
    )


def made_available(queue: str) -> dict[str, Any]:
    """Return when the first and the last job of a queue became available."""
    jobs = Job.objects.filter(queue=queue)
    return jobs.aggregate(first=Min("enqueued_at"), last=Max("enqueued_at"))


def test_a_burst_of_due_jobs_delays_no_other_queue(site: Site, report: Report) -> None:
    for _ in range(BURST // 1_000):
        push_many(1_000, queue="burst", scheduled_at=HOUR)
    # Due at the same moment, but after them in the order of all jobs.
    others = [push(queue=f"other{n}", scheduled_at=HOUR) for n in range(3)]
    keys = [job.pk for job in others]
    Job.objects.update(due_at=Now() - timedelta(seconds=1))
    Job.objects.filter(pk__in=keys).update(due_at=F("due_at") + timedelta(milliseconds=1))
    began = time.monotonic()
    # Two workers, none of which works on these queues.
    for _ in range(2):
        site.start("--queues", "unused").ready()
    all_available("burst", instead_of=State.SCHEDULED)
    seconds = time.monotonic() - began
    burst = made_available("burst")
    delays = []
    for job in Job.objects.filter(pk__in=keys):
        assert job.state == "available"
        assert burst["first"] <= job.enqueued_at < burst["last"]
        delays.append(job.enqueued_at - burst["first"])
    report(
        f"{BURST} due jobs available {seconds:.1f} s after the start of two workers, "
        f"{BURST / (burst['last'] - burst['first']).total_seconds():,.0f} a second; the jobs of "
        f"other queues at most {max(delays).total_seconds():.2f} s after the first"
    )


def test_very_many_leases_lapse_and_each_run_ends_once(site: Site, report: Report) -> None:
    for _ in range(LAPSED // 500):
        push_many(500, queue="lapsing")
        fetch.fetch(["lapsing"], count=500, worker_id=None, due=False)
    Job.objects.update(lease_until=Now() - timedelta(seconds=10))
    due = push(queue="other", scheduled_at=HOUR)
    Job.objects.filter(pk=due.pk).update(due_at=Now())
    for _ in range(2):
        site.start("--queues", "unused").ready()
    began = time.monotonic()
    all_available("lapsing", instead_of=State.ACTIVE)
    seconds = time.monotonic() - began
    times = made_available("lapsing")
    again = Job.objects.filter(queue="lapsing", state="available", attempt=1)
    assert again.count() == LAPSED
    assert again.filter(attempts__outcome="lapsed").count() == LAPSED
    due.refresh_from_db()
    assert due.state == "available"
    assert due.enqueued_at is not None
    assert due.enqueued_at <= times["last"]
    report(f"{LAPSED} lapsed leases taken back within {seconds:.1f} s after the start")
