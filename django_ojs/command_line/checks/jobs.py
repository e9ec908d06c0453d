"""Jobs and their upkeep: counters, types without a handler, retention, maintenance."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from django.db.models import Count
from django.db.models.functions import Now

from django_ojs.command_line.checks.finding import Check, DoctorFinding
from django_ojs.formatting import grouped
from django_ojs.handlers import job_types
from django_ojs.models import Job, Lease, Worker
from django_ojs.operations import expiry, promotion
from django_ojs.operations.maintenance import job_retention, lease, pruning
from django_ojs.operations.workers import registry
from django_ojs.spec.states import TERMINAL, WAITING
from django_ojs.storage import raw_queries
from django_ojs.storage.figures import counts

#: How long maintenance may be late before it is a finding.
LATE: Final = timedelta(minutes=1)
#: The same for pruning, for which no one waits.
PRUNING_LATE: Final = timedelta(minutes=10)
#: If the maintenance lease was not renewed for this long, no worker has it.
LEASE: Final = timedelta(seconds=10)
#: Finished jobs that are kept so long are kept forever.
KEPT_FOREVER: Final = timedelta(days=3650)


def _counters() -> Iterator[DoctorFinding]:
    for queue, state, counted, actual, counted_bytes, size in counts.differences():
        text = f"Queue {queue}, {state}: counted {grouped(counted)}, there are {grouped(actual)}."
        if counted_bytes != size:
            text = (
                f"Queue {queue}, {state}: counted {grouped(counted)}, there are "
                f"{grouped(actual)}; counted {grouped(counted_bytes)} bytes, there are "
                f"{grouped(size)}."
            )
        yield DoctorFinding(
            found=text,
            why=(
                "Figures and alerts are wrong, and a bounded queue accepts too "
                "many jobs or too few."
            ),
            cure=(
                "Run `manage.py ojs doctor --repair`; workers and producers can go "
                "on meanwhile. If it comes back, see the triggers."
            ),
        )


def _types() -> Iterator[DoctorFinding]:
    known = set(job_types())
    foreign = {
        queue for worker in Worker.primary.exclude(owner="") for queue in registry.queues_of(worker)
    }
    waiting = Job.primary.filter(state__in=WAITING).values("queue", "type")
    for row in waiting.annotate(number=Count("pk")).order_by("queue", "type"):
        # A worker that reports over HTTP has handlers that are not known here.
        if row["type"] in known or row["queue"] in foreign:
            continue
        yield DoctorFinding(
            found=(
                f"The type {row['type']} has no handler here; its jobs that wait in the queue "
                f"{row['queue']}: {grouped(row['number'])}."
            ),
            why="Workers of this project hold them back again and again, and never run them.",
            cure=(
                "Deploy their handler, put its app into INSTALLED_APPS, or import its module in "
                "the jobs.py of its app; for a task of django.tasks outside of a tasks.py, its "
                "module into OPTIONS['modules'] of the backend. If the type was renamed or "
                f"removed: `manage.py ojs cancel type:{row['type']} queue:{row['queue']}`."
            ),
        )


def _retention() -> Iterator[DoctorFinding]:
    for (state, dead_letter), kept in job_retention.current().items():
        if kept.longest >= KEPT_FOREVER:
            setting = "KEEP_DEAD_LETTERS" if dead_letter else f"KEEP_{state.upper()}"
            yield DoctorFinding(
                found=(
                    f"The dead letters are kept for {grouped(kept.longest.days)} days."
                    if dead_letter
                    else f"The {state} jobs are kept for {grouped(kept.longest.days)} days."
                ),
                why="They are never deleted in practice: the table and its backups grow forever.",
                cure=(
                    f"Set OJS['{setting}'], such as 'P30D', or the retention of the queue. "
                    "`manage.py ojs export` archives jobs first."
                ),
            )
    for (state, dead_letter), number in pruning.overdue(PRUNING_LATE).items():
        which = "Dead letters" if dead_letter else f"{state.capitalize()} jobs"
        least = "at least " if number >= pruning.COUNTED else ""
        yield DoctorFinding(
            found=f"{which} past their retention: {least}{grouped(number)}.",
            why="Pruning is behind, or no worker does it: the table grows.",
            cure="Start a worker: it deletes them.",
        )


def _maintenance() -> Iterator[DoctorFinding]:
    unfinished = sum(n for state, n in counts.totals().items() if state not in TERMINAL)
    held = Lease.primary.filter(name=lease.MAINTENANCE, until__gt=Now() - LEASE)
    # A worker that stops gives the lease back, and another one takes it within seconds.
    alive = Worker.primary.filter(owner="", beat_at__gt=Now() - LATE)
    if unfinished and not held.exists() and not alive.exists():
        yield DoctorFinding(
            found="No worker does the maintenance.",
            why=(
                "Scheduled and retryable jobs do not become available, and the "
                "jobs of dead workers are not rescued."
            ),
            cure="Start a worker: `manage.py ojs_worker`.",
        )
    due, expired = raw_queries.which_hold(
        [promotion.due_condition(LATE), expiry.expired_condition(LATE)]
    )
    for is_late, text in (
        (due, "Jobs that became due over a minute ago are still waiting."),
        (expired, "Jobs that expired over a minute ago are still waiting."),
    ):
        if is_late:
            yield DoctorFinding(
                found=text,
                why="Maintenance is behind: jobs start late.",
                cure=(
                    "See whether a worker is running, whether maintenance mode is on, "
                    "and what the workers log."
                ),
            )


CHECKS: Final = (
    Check(name="counters", about="The counters", run=_counters, repair=(counts.repair,)),
    Check(name="types", about="The types of waiting jobs", run=_types),
    Check(name="retention", about="Retention and pruning", run=_retention),
    Check(name="maintenance", about="Maintenance", run=_maintenance),
)
