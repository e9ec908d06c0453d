"""`workers`: the processes that run jobs."""

from typing import Final

from django_ojs.command_line.console import Console
from django_ojs.command_line.lists import (
    ListColumn,
    as_json,
    column,
    members,
    write_list,
    write_table,
)
from django_ojs.command_line.subcommand import OK, Options, Subcommand, add_limit
from django_ojs.formatting import grouped
from django_ojs.operations.workers import registry
from django_ojs.operations.workers.registry import WorkerStatus
from django_ojs.reports import ended_workers
from django_ojs.reports.ended_workers import EndedWorker

_WORKER_COLUMNS: Final[list[ListColumn[WorkerStatus]]] = [
    column("id", "id", "worker.pk"),
    column("state", "state", "condition"),
    column("queues", "names"),
    ListColumn(name="pool", value=lambda row: row.worker.pool or None, drops=3),
    column("active_jobs", "number", title="JOBS"),
    column("concurrency", "number", "worker.concurrency", title="SLOTS"),
    column("hostname", path="worker.hostname", drops=4),
    column("pid", path="worker.pid", drops=5),
    column("labels", "names", "worker.labels", drops=2),
    *members("version started_at", of="worker"),
    column("seen_at", "time", "worker.seen_at", title="SEEN", drops=1),
]
_DEAD_COLUMNS: Final[list[ListColumn[EndedWorker]]] = [
    column("id", "id"),
    column("how"),
    column("ended_at", "time", title="DIED"),
    column("jobs_rescued", "number", title="JOBS TAKEN BACK"),
]


def _workers(console: Console, options: Options) -> int:
    found = registry.listing(limit=options["limit"])
    dead = ended_workers.dead(options["limit"])
    more = found.total - len(found.workers)
    if (
        write_list(
            console,
            "workers",
            _WORKER_COLUMNS,
            found.workers,
            none="No worker is running. Start one: manage.py ojs_worker --queues default",
            total=found.total,
            running=found.running,
            quiet=found.quiet,
            stale=found.stale,
            died=[as_json(_DEAD_COLUMNS, each) for each in dead],
        )
        and more
    ):
        console.line(f"Workers that are not shown: {grouped(more)} (--limit).")
    if dead and not console.as_json:
        console.line()
        console.line("Died in the last day:", "bold")
        write_table(console, _DEAD_COLUMNS, dead)
    return OK


SUBCOMMANDS: Final = (
    Subcommand(
        name="workers",
        help="the known workers, and how many jobs they run",
        description=(
            "Show the workers. A stale one has sent no heartbeat in time; workers rescue its jobs "
            "and remove it. Below them are those that died in the last day."
        ),
        examples="""\
  manage.py ojs workers
  manage.py ojs workers --json""",
        add_arguments=lambda parser: add_limit(
            parser, 100, "the number of workers (default: %(default)d)"
        ),
        run=_workers,
    ),
)
