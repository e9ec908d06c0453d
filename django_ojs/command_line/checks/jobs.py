"""Jobs and their upkeep: counters, types without a handler, retention, maintenance."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from django.db.models import Count

from django_ojs.command_line.checks.finding import Check
from django_ojs.finding import Finding, Severity
from django_ojs.formatting import grouped
from django_ojs.handlers import job_types
from django_ojs.models import Job, Worker
from django_ojs.operations.maintenance import job_pruning, job_retention
from django_ojs.operations.workers import registry
from django_ojs.spec.states import WAITING
from django_ojs.storage.figures import counts

#: How late pruning may be before it is a finding. It may be late, because nothing waits for it.
PRUNING_LATE: Final = timedelta(minutes=10)
#: Finished jobs that are kept for at least this time count as kept forever.
KEPT_FOREVER: Final = timedelta(days=3650)


def _counters() -> Iterator[Finding]:
    for each in counts.differences():
        text = (
            f"Queue {each.queue}, {each.state}: counted {grouped(each.counted)}, there are "
            f"{grouped(each.actual)}"
        )
        if each.counted_bytes != each.bytes:
            counted, actual = grouped(each.counted_bytes), grouped(each.bytes)
            text += f"; counted {counted} bytes, there are {actual}"
        yield Finding(
            kind="counters_wrong",
            subject=f"{each.queue} {each.state}",
            text=f"{text}.",
            why=(
                "Figures and alerts are wrong, and a bounded queue accepts too "
                "many jobs or too few."
            ),
            cure=(
                "Run `manage.py ojs doctor --repair`; workers and producers can "
                "continue. If the difference comes back, run `--only triggers` too."
            ),
        )


def _types() -> Iterator[Finding]:
    known = set(job_types())
    foreign = {
        queue for worker in Worker.primary.exclude(owner="") for queue in registry.queues_of(worker)
    }
    waiting = Job.primary.filter(state__in=WAITING).values("queue", "type")
    for row in waiting.annotate(number=Count("pk")).order_by("queue", "type"):
        # A worker that reports over HTTP may have handlers that are not known here.
        if row["type"] in known or row["queue"] in foreign:
            continue
        yield Finding(
            kind="type_unhandled",
            subject=f"{row['type']} {row['queue']}",
            text=(
                f"The type {row['type']} has no handler here; its jobs that wait in the queue "
                f"{row['queue']}: {grouped(row['number'])}."
            ),
            why="Workers of this project hold them back again and again, and never run them.",
            cure=(
                "Deploy their handler, put its app into INSTALLED_APPS, or import its module in "
                "the jobs.py of its app; for a task of django.tasks outside of a tasks.py, add its "
                "module to OPTIONS['modules'] of the backend. If the type was renamed or "
                f"removed: `manage.py ojs cancel type:{row['type']} queue:{row['queue']}`."
            ),
        )


def _retention() -> Iterator[Finding]:
    for (state, dead_letter), kept in job_retention.current().items():
        if kept.longest >= KEPT_FOREVER:
            setting = "KEEP_DEAD_LETTERS" if dead_letter else f"KEEP_{state.upper()}"
            yield Finding(
                kind="kept_forever",
                subject="dead letters" if dead_letter else state,
                severity=Severity.ADVICE,
                text=(
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
    for (state, dead_letter), number in job_pruning.overdue(PRUNING_LATE).items():
        which = "Dead letters" if dead_letter else f"{state.capitalize()} jobs"
        least = "at least " if number >= job_pruning.COUNTED else ""
        yield Finding(
            kind="pruning_late",
            subject="dead letters" if dead_letter else state,
            text=f"{which} past their retention: {least}{grouped(number)}.",
            why="Pruning is behind, or no worker does it: the table grows.",
            cure="Start a worker: it deletes them.",
        )


CHECKS: Final = (
    Check(name="counters", about="The counters", run=_counters, repair=(counts.repair,)),
    Check(name="types", about="The types of waiting jobs", run=_types),
    Check(name="retention", about="Retention and pruning", run=_retention),
)
