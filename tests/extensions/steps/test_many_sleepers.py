"""Jobs that sleep cost their rows and nothing else: what others do reads none of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ojs.extensions import steps
from django_ojs.extensions.steps.models import Step
from django_ojs.extensions.steps.pruning import prune_signals
from django_ojs.models import Job
from django_ojs.operations.due_jobs import DueCheck
from django_ojs.operations.fetch import fetch
from django_ojs.storage.figures import counts
from django_ojs.testing import TestContext
from tests import sizes
from tests.admin.users import root
from tests.extensions.steps.programs import Program
from tests.factories import push

pytestmark = [pytest.mark.django_db, pytest.mark.statements, pytest.mark.sized]

SLEEPERS = 100_000 if sizes.FULL else 5_000
#: Rows, or thousands of steps of SQLite's machine, that an operation may read beside its own: the
#: overview looks at the jobs that are due next, with their steps.
FEW = 1_500


def fill(ojs: TestContext) -> str:
    """Let jobs wait for a signal, each for one of its own. Return the queue."""

    def program(ctx: Any) -> None:
        steps.wait("packed", "order-0", timeout=86_400)

    waiting = Program(ojs, program)
    waiting.run()
    job, step = Job.primary.get(pk=waiting.id), Step.primary.get(job_id=waiting.id)
    for start in range(0, SLEEPERS, 1_000):
        keys = [uuid4() for _ in range(1_000)]
        fields = {f.attname: getattr(job, f.attname) for f in Job._meta.concrete_fields}
        Job.primary.bulk_create([Job(**fields | {"id": key}) for key in keys])
        values = {f.attname: getattr(step, f.attname) for f in Step._meta.concrete_fields}
        Step.primary.bulk_create(
            [
                Step(**values | {"job_id": key, "key": f"order-{start + n + 1}"})
                for n, key in enumerate(keys)
            ]
        )
    counts.fold()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    return job.queue


def cost(operation: Callable[[], object]) -> tuple[int, int]:
    """Return how many statements an operation executes, and how much they read."""
    operation()  # What is read once in a process.
    before = _read()
    with CaptureQueriesContext(connection) as queries:
        if connection.vendor == "sqlite":
            machine: Any = connection.connection
            ticks: list[int] = []
            machine.set_progress_handler(lambda: ticks.append(1), 1_000)
            try:
                operation()
            finally:
                machine.set_progress_handler(None, 0)
            return len(queries), len(ticks)
        operation()
    return len(queries), _read() - before


def _read() -> int:
    """Return how many rows of jobs and of steps this transaction has read, on PostgreSQL."""
    if connection.vendor != "postgresql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_xact_user_tables "
            "WHERE relname IN ('ojs_job', 'ojs_step')"
        )
        return int(cursor.fetchone()[0])


def test_what_others_do_reads_no_sleeper(ojs: TestContext) -> None:
    client = root()

    def claim() -> None:
        push(queue="other")
        assert len(fetch(["other"], worker_id="w", due=False)) == 1

    def due_steps() -> None:
        check = DueCheck()
        assert check.promote() == 0
        check.expire()
        assert prune_signals() == 0

    def overview() -> None:
        assert client.get("/admin/django_ojs/overview/", follow=True).status_code == 200

    operations = {each.__name__: each for each in (claim, due_steps, overview)}
    operations["signal"] = lambda: steps.signal("packed", "nobody")
    alone = {name: cost(operation) for name, operation in operations.items()}
    fill(ojs)
    for name, operation in operations.items():
        statements, read = cost(operation)
        assert statements <= alone[name][0] + 2, name
        assert read <= alone[name][1] + FEW, (name, alone[name], read)
    assert Job.primary.filter(state="scheduled").count() == SLEEPERS + 1


def test_a_signal_wakes_one_of_many(ojs: TestContext) -> None:
    fill(ojs)
    _, read = cost(lambda: steps.signal("packed", "order-7"))
    assert read <= FEW
    assert Job.primary.filter(state="available").count() == 1
