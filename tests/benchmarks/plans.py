"""`python -m tests.benchmarks.plans`: the plans of what django_ojs runs, on a table of any size.

The statements are taken from the operations as they run, so that these plans are theirs.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks import contenders
from tests.benchmarks.contenders.base import VARIABLE
from tests.benchmarks.server import HOME, NAME_VARIABLE, Server

DATABASE = f"ojs_bench_plans_{os.getpid()}"

_EXPLAINED = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")

# What a busy site has besides its finished jobs: jobs that wait for their time, some of them due;
# jobs in hand, some of them lapsed; finished ones that are old enough to go.
_LIVE = (
    """
    UPDATE ojs_job SET state = 'scheduled', due_at = now() + interval '1 second' * n - interval
        '5 minutes', enqueued_at = NULL
    FROM (SELECT id, row_number() OVER () AS n FROM ojs_job WHERE state = 'available' LIMIT {tenth})
        AS picked WHERE picked.id = ojs_job.id
    """,
    """
    UPDATE ojs_job SET expires_at = now() + interval '1 second' * n - interval '100 seconds'
    FROM (SELECT id, row_number() OVER () AS n FROM ojs_job WHERE state = 'available' LIMIT {tenth})
        AS picked WHERE picked.id = ojs_job.id
    """,
    """
    UPDATE ojs_job SET state = 'active', attempt = 1, run = 1, started_at = now(),
        worker_id = 'worker_' || n % 8, lease_until = now() + interval '1 second' * n - interval
        '1 minute'
    FROM (SELECT id, row_number() OVER () AS n FROM ojs_job
          WHERE state = 'available' AND expires_at IS NULL LIMIT {tenth}) AS picked
    WHERE picked.id = ojs_job.id
    """,
    """
    UPDATE ojs_job SET finished_at = finished_at - interval '200 days'
    WHERE id IN (SELECT id FROM ojs_job WHERE state IN ('completed', 'discarded', 'cancelled')
                 ORDER BY finished_at LIMIT {tenth})
    """,
)


def measure(rows: int, waiting: int, held: int) -> Iterator[str]:
    """Fill a table and yield the plans, each under its title. Django is set up here.

    Those of the claims are repeated once the queue has jobs that limits hold.
    """
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection

    from tests.benchmarks import filling

    call_command("migrate", verbosity=0)
    filling.fill(finished=rows, waiting=waiting)
    with connection.cursor() as cursor:
        for statement in _LIVE:
            cursor.execute(statement.format(tenth=waiting // 10))
    filling.tidy()
    yield f"# {rows:,} finished jobs, {waiting:,} that are not"
    for title, prepare, step in steps():
        yield f"\n## {title}\n"
        yield from explain(prepare, step)
    filling.hold(held)
    yield f"\n# The same, and {held:,} jobs of the queue that limits hold"
    for title, prepare, step in _claims_beside_held_jobs():
        yield f"\n## {title}\n"
        yield from explain(prepare, step)


def steps() -> list[tuple[str, Callable[[], Any], Callable[[Any], Any]]]:
    """Return each step with its title and what is done before it."""
    import django_ojs as ojs
    from django_ojs.operations import expiry, promotion
    from django_ojs.operations.maintenance import job_pruning
    from django_ojs.operations.workers import rescue
    from django_ojs.storage import transitions
    from django_ojs.storage.dialects.rows import ClaimRequest
    from django_ojs.storage.figures import counts

    def claim(count: int) -> Any:
        return transitions.claim(
            ClaimRequest(queue="default", limit=count, worker_id="w", lease_ms=60_000)
        )

    def nothing() -> None:
        return None

    return [
        ("PUSH, one job", nothing, lambda _: ojs.enqueue("bench.noop", [1])),
        ("FETCH: the claim of one", nothing, lambda _: claim(1)),
        ("FETCH: the claim of a hundred", nothing, lambda _: claim(100)),
        (
            "ACK: a hundred completions",
            lambda: claim(100),
            lambda jobs: transitions.complete("w", [(job.id, job.run, None) for job in jobs]),
        ),
        ("Promotion", nothing, lambda _: promotion.promote()),
        ("Expiry", nothing, lambda _: expiry.expire()),
        ("Lapsed leases", nothing, lambda _: rescue.lapse()),
        ("Rescue of a dead worker's jobs", nothing, lambda _: rescue.rescue(["worker_3"])),
        ("Pruning", nothing, lambda _: job_pruning.prune()),
        ("Counts by state", nothing, lambda _: counts.by_queue()),
        ("Depth of a queue", nothing, lambda _: counts.depth("default")),
        (
            "Folding of the counts",
            lambda: [ojs.enqueue("bench.noop", [number]) for number in range(100)],
            lambda _: counts.fold(),
        ),
    ]


def _claims_beside_held_jobs() -> list[tuple[str, Callable[[], Any], Callable[[Any], Any]]]:
    from django.db.models.functions import Now

    from django_ojs.extensions.limits import limit_journal
    from django_ojs.extensions.limits.models import LimitCheck
    from django_ojs.operations import fetch

    def claim(count: int) -> Any:
        return fetch.fetch(["default"], count=count, worker_id="w", due=False)

    def nothing() -> None:
        return None

    def end_one() -> None:
        LimitCheck.primary.create(limit_key="account-7", due_at=Now())

    return [
        ("Whether a FETCH may find a job", nothing, lambda _: fetch.may_find(["default"])),
        ("FETCH: the claim of one", nothing, lambda _: claim(1)),
        ("FETCH: the claim of a hundred", nothing, lambda _: claim(100)),
        ("Opening the held jobs of a key", end_one, lambda _: limit_journal.open_due()),
    ]


def explain(prepare: Callable[[], Any], step: Callable[[Any], Any]) -> Iterator[str]:
    """Yield the plan of each statement of a step, whose changes are rolled back."""
    from django.db import connection, transaction

    plans: list[str] = []
    with transaction.atomic():
        given = prepare()
        with connection.execute_wrapper(_Explainer(plans)):
            step(given)
        transaction.set_rollback(True)
    yield from plans


class _Explainer:
    """Has each statement explained, takes that back, and lets the statement run."""

    def __init__(self, plans: list[str]) -> None:
        self._plans = plans

    def __call__(
        self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        if sql.lstrip().startswith(_EXPLAINED):
            with _taken_back(execute, context):
                execute("EXPLAIN (ANALYZE, BUFFERS) " + sql, params, many, context)
                plan = "\n".join(row[0] for row in context["cursor"].fetchall())
            self._plans.append(f"{sql.strip()}\n\n{plan}\n")
        return execute(sql, params, many, context)


@contextmanager
def _taken_back(execute: Callable[..., Any], context: Any) -> Iterator[None]:
    execute("SAVEPOINT explained", None, False, context)
    yield
    execute("ROLLBACK TO SAVEPOINT explained", None, False, context)


def run(rows: int, waiting: int, held: int, path: Path) -> None:
    """Fill a database of its own, write the plans to a file, and drop the database."""
    server = Server()
    os.environ[NAME_VARIABLE] = server.create(DATABASE)
    os.environ[VARIABLE] = contenders.OURS
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.benchmarks.settings"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            for text in measure(rows, waiting, held):
                file.write(text + "\n")
    finally:
        from django.db import connections

        connections.close_all()
        server.close()


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks.plans", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="finished jobs")
    parser.add_argument("--waiting", type=int, default=100_000, help="jobs that are not")
    parser.add_argument("--held", type=int, default=100_000, help="jobs that limits hold")
    parser.add_argument("--out", type=Path, default=HOME / "plans.txt")
    arguments = parser.parse_args()
    run(arguments.rows, arguments.waiting, arguments.held, arguments.out)
    print(f"The plans are in {arguments.out}.")


if __name__ == "__main__":
    main()
