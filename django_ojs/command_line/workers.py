"""`workers`: the processes that run jobs."""

from typing import Final

from django_ojs.command_line.console import Console
from django_ojs.command_line.lists import ListColumn, column, members, write_list
from django_ojs.command_line.subcommand import OK, Options, Subcommand, add_limit
from django_ojs.formatting import grouped
from django_ojs.operations.workers import registry
from django_ojs.operations.workers.registry import WorkerStatus

_WORKER_COLUMNS: Final[list[ListColumn[WorkerStatus]]] = [
    column("id", "id", "worker.pk"),
    column("state", "state", "condition"),
    column("queues"),
    ListColumn(name="pool", value=lambda row: row.worker.pool or None),
    column("active_jobs", "number"),
    column("concurrency", "number", "worker.concurrency"),
    column("hostname", path="worker.hostname"),
    column("pid", "id", "worker.pid"),
    column("labels", path="worker.labels"),
    *members("version started_at", of="worker"),
    column("seen_at", "duration", "worker.seen_at"),
]


def _workers(console: Console, options: Options) -> int:
    found = registry.listing(limit=options["limit"])
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
        )
        and more
    ):
        console.line(f"Workers that are not shown: {grouped(more)} (--limit).")
    return OK


SUBCOMMANDS: Final = (
    Subcommand(
        name="workers",
        help="the registered workers, and what they do",
        description=(
            "Show the workers. A stale one has sent no heartbeat in time; "
            "workers rescue its jobs and remove it."
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
