"""Queues that share a worker, and pools: real processes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from django.db.models import Sum
from django.test import override_settings

from django_ojs.models import Job
from tests.command_line.run import ojs
from tests.factories import push_many
from tests.testapp import worker_jobs as handlers
from tests.worker.acceptance.conftest import Start
from tests.worker.acceptance.ledger import ALIASES, becomes, stored

pytestmark = [pytest.mark.django_db(transaction=True, databases=ALIASES), pytest.mark.slow]


def put(queue: str, number: int) -> None:
    push_many(number, queue=queue, type="worker.quick", args=[1])


def claims() -> Counter[str]:
    """Return how often jobs of each queue were claimed."""
    # Also those that a busy worker gave back.
    runs = Job.objects.filter(run__gt=0).values_list("queue").annotate(Sum("run"))
    return Counter(dict(runs.order_by()))


@pytest.mark.requirement("FS-R002")
@pytest.mark.smoke
def test_ten_thousand_jobs_of_one_queue_do_not_starve_another(start: Start) -> None:
    put("bulk", 10_000)
    put("mail", 100)
    assert start("--once", "--queues", "bulk:9,mail:1", "--max-jobs", "1000").ends() == 0
    found = claims()
    assert found.total() == 1000
    # By the arithmetic of the turns it is less than the number of queues off, from any start.
    assert abs(found["mail"] - 100) < 2


@pytest.mark.requirement("FS-R003")
def test_strict_is_strict_and_starvation_is_prevented_where_a_pool_says_so(start: Start) -> None:
    put("bulk", 1000)
    put("mail", 100)
    limit = ("--max-jobs", "400")
    assert start("--once", "--queues", "bulk,mail", *limit).ends() == 0
    before = claims()
    assert before == {"bulk": 400}
    pool = {"queues": ["bulk", "mail"], "strategy": "strict"}
    pool["starvation_prevention"] = {"min_dispatch_ratio": 0.1}
    assert start("--once", "--pool", "all", *limit, ojs={"POOLS": {"all": pool}}).ends() == 0
    found = claims() - before
    assert found.total() == 400
    # Three take turns: the least part of each queue, and the strict order.
    assert abs(found["mail"] - 40) < 3


POOLS: dict[str, Any] = {
    "POOLS": {"critical": {"queues": {"pay": 3, "post": 1}, "exclusive": True}},
}


@pytest.mark.requirement("FS-R006")
@pytest.mark.smoke
def test_a_pool_has_its_queues_for_itself(start: Start) -> None:
    job = stored(handlers.note.options(queue="pay").enqueue())
    other = stored(handlers.note.enqueue())
    start("--queues", "*", ojs=POOLS).ready()
    becomes(other, "completed")
    assert not Job.objects.filter(queue="pay").exclude(state="available").exists()
    pool = start("--pool", "critical", "--processes", "2", "--threads", "3", ojs=POOLS).ready(2)
    becomes(job, "completed")
    rows = pool.workers()
    assert [(row.pool, row.queues, row.concurrency) for row in rows] == [
        ("critical", ["pay", "post"], 3)
    ] * 2
    with override_settings(OJS=POOLS):
        listed = ojs("workers").out
    assert " POOL " in listed
    assert listed.count("critical") == 2
