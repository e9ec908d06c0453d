"""`stats` and `workers`: the numbers and rates of jobs, and the processes that run them."""

from argparse import ArgumentParser
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from signal import SIGINT, SIGTERM
from typing import Any, Final, TypeVar

from django.db import DatabaseError, connections
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext, pgettext_lazy

from django_ojs import formatting
from django_ojs.command_line.console import NONE, Cell, Console, TableColumn
from django_ojs.command_line.queues import known_queue
from django_ojs.command_line.subcommand import OK, Options, Subcommand, add_limit, duration
from django_ojs.formatting import grouped
from django_ojs.operations import queues
from django_ojs.operations.figures import queue_overview, stats
from django_ojs.operations.figures.queue_overview import Level, Listeners, OverviewRow
from django_ojs.operations.maintenance import mode
from django_ojs.operations.maintenance.mode import MaintenanceStatus
from django_ojs.operations.workers import registry
from django_ojs.spec.states import State
from django_ojs.spec.times import elapsed, format_timestamp
from django_ojs.storage import database
from django_ojs.storage.figures import oldest_available, rollup_queries
from django_ojs.storage.figures.counts import ByState
from django_ojs.worker.signal_handlers import signal_handlers
from django_ojs.worker.wake_event import WakeEvent

T = TypeVar("T")

_LEVEL_STYLES: Final = {Level.FAIR: "yellow", Level.BAD: "bold red"}
_CONDITION_STYLES: Final = {"running": "green", registry.STALE: "bold red"}
_SHOWN_STATES: Final = (State.AVAILABLE, State.SCHEDULED, State.RETRYABLE, State.ACTIVE)
STATE_TITLES: Final = {
    State.AVAILABLE: pgettext_lazy("jobs", "AVAILABLE"),
    State.SCHEDULED: pgettext_lazy("jobs", "SCHEDULED"),
    State.RETRYABLE: pgettext_lazy("jobs", "RETRYABLE"),
    State.ACTIVE: pgettext_lazy("jobs", "ACTIVE"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Figures:
    """What `stats` shows, read at one time."""

    at: datetime
    jobs: ByState
    listeners: Listeners
    maintenance: MaintenanceStatus
    rows: list[OverviewRow]
    oldest: Mapping[str, datetime]
    more: int


def _read(names: list[str], limit: int) -> _Figures:
    if names:
        statuses, more = [known_queue(name) for name in names], 0
    else:
        listing = queues.busiest(limit=limit)
        statuses = listing.queues
        more = listing.total - len(statuses)
    names = [status.name for status in statuses]
    listeners = queue_overview.listeners(statuses)
    oldest = oldest_available.oldest(names)
    return _Figures(
        at=timezone.now(),
        jobs=stats.by_state(),
        listeners=listeners,
        maintenance=mode.status(),
        rows=queue_overview.overview(
            statuses,
            flows=rollup_queries.flows(queues=names),
            oldest=oldest,
            listens=listeners.by_queue,
        ),
        oldest=oldest,
        more=more,
    )


def _stats(console: Console, options: Options) -> int:
    query = partial(_read, options["queue"], options["limit"])
    if options["watch"] is None:
        _show(console, query())
        return OK
    stop = WakeEvent()
    handlers = dict.fromkeys((SIGINT, SIGTERM), lambda *_: stop.set())
    with signal_handlers(handlers), console.screen():
        while True:
            with console.frame():
                try:
                    _show(console, query())
                except DatabaseError as error:
                    if not database.is_unavailable(error):
                        raise
                    reason = database.unavailable_reason(error)
                    console.note(
                        _("The database does not respond (%(reason)s); trying again.")
                        % {"reason": reason}
                    )
                    connections.close_all()
            if stop.wait(options["watch"].total_seconds()):
                return OK


def _show(console: Console, figures: _Figures) -> None:
    if console.as_json:
        console.json(_as_json(figures))
        return
    jobs = ", ".join(f"{grouped(figures.jobs.get(state, 0))} {state}" for state in State)
    workers = figures.listeners
    counted = _("Workers: %(total)d, %(stale)d stale") if workers.stale else _("Workers: %(total)d")
    counted %= {"total": workers.total, "stale": workers.stale}
    console.line(formatting.absolute_time(figures.at), "bold")
    console.line(_("Jobs: %(counts)s") % {"counts": jobs})
    console.line(counted, "bold red" if workers.stale else "")
    if figures.maintenance.enabled:
        console.line(
            _("Maintenance mode is on: %(reason)s")
            % {"reason": figures.maintenance.reason or NONE},
            "bold red",
        )
    console.line()
    if not figures.rows:
        console.line(_("No queue has had a job yet."))
        return
    columns = [
        TableColumn(_("QUEUE"), shrinks=True),
        *(TableColumn(str(STATE_TITLES[state]), right=True) for state in _SHOWN_STATES),
        *(
            TableColumn(name, right=True)
            for name in (
                _("IN/MIN"),
                _("OUT/MIN"),
                _("OLDEST"),
                pgettext("a share", "FULL"),
                _("WORKERS"),
            )
        ),
        TableColumn(_("STATE")),
    ]
    console.table(columns, [_row(figures, row) for row in figures.rows])
    if figures.more:
        console.line(
            _("Queues that are not shown: %(more)s (--limit, or --queue NAME).")
            % {"more": grouped(figures.more)}
        )


def _row(figures: _Figures, row: OverviewRow) -> list[Cell | str]:
    pressure = row.pressure
    counts = (grouped(row.status.counts.get(state, 0)) for state in _SHOWN_STATES)
    return [
        row.name,
        *counts,
        formatting.decimal(f"{row.flow.came_per_minute:.1f}"),
        formatting.decimal(f"{row.flow.went_per_minute:.1f}"),
        age(figures.oldest.get(row.name), figures.at),
        Cell(NONE if pressure is None else f"{pressure:.0%}", _LEVEL_STYLES.get(row.level, "")),
        Cell(str(row.listening or 0), "bold red" if row.unworked else ""),
        Cell(
            str(row.status.state),
            "yellow" if row.status.paused or row.status.draining_at else "",
        ),
    ]


def _as_json(figures: _Figures) -> dict[str, Any]:
    return {
        "at": format_timestamp(figures.at),
        "jobs": {state.value: figures.jobs.get(state, 0) for state in State},
        "workers": {"total": figures.listeners.total, "stale": figures.listeners.stale},
        "maintenance_mode": figures.maintenance.enabled,
        "queues": [
            {
                "name": row.name,
                "state": row.status.state.value,
                "depth": row.depth,
                "jobs": {state.value: row.status.counts.get(state, 0) for state in State},
                "enqueued_per_minute": row.flow.came_per_minute,
                "finished_per_minute": row.flow.went_per_minute,
                "oldest_available_at": _timestamp(figures.oldest.get(row.name)),
                "max_depth": row.bound.max_depth,
                "max_size_bytes": row.bound.max_size_bytes,
                "pressure": row.pressure,
                "workers": row.listening,
            }
            for row in figures.rows
        ],
        "more_queues": figures.more,
    }


def age(since: datetime | None, now: datetime) -> str:
    """Return how long ago a time was; for one in the future, "in" and how long until then."""
    if since is None:
        return NONE
    ago = elapsed(since, now)
    text = short_duration(abs(ago.total_seconds()))
    return text if ago.total_seconds() >= 0 else _("in %(duration)s") % {"duration": text}


def short_duration(seconds: float) -> str:
    """Return a duration in its two largest units."""
    return formatting.duration(seconds).replace("\N{NARROW NO-BREAK SPACE}", "")


def _timestamp(moment: datetime | None) -> str | None:
    return None if moment is None else format_timestamp(moment)


def _workers(console: Console, options: Options) -> int:
    found = registry.listing(limit=options["limit"])
    now = timezone.now()
    if console.as_json:
        console.json(
            {
                "workers": [
                    {
                        "id": each.worker.pk,
                        "state": each.condition,
                        "queues": each.queues,
                        "pool": each.worker.pool or None,
                        "active_jobs": each.active_jobs,
                        "concurrency": each.worker.concurrency,
                        "hostname": each.worker.hostname,
                        "pid": each.worker.pid,
                        "labels": each.worker.labels,
                        "version": each.worker.version,
                        "started_at": _timestamp(each.worker.started_at),
                        "seen_at": _timestamp(each.worker.seen_at),
                    }
                    for each in found.workers
                ],
                "total": found.total,
                "running": found.running,
                "quiet": found.quiet,
                "stale": found.stale,
            }
        )
        return OK
    if not found.workers:
        console.line(_("No worker is running. Start one: manage.py ojs_worker --queues default"))
        return OK
    has_pools = any(each.worker.pool for each in found.workers)
    columns = [
        TableColumn(_("WORKER")),
        TableColumn(_("STATE")),
        TableColumn(_("JOBS"), right=True),
        TableColumn(_("SEEN"), right=True),
        *([TableColumn(_("POOL"), shrinks=True)] if has_pools else []),
        *(TableColumn(title, shrinks=True) for title in (_("QUEUES"), _("HOST"))),
        TableColumn(_("PID")),
        TableColumn(_("LABELS"), shrinks=True),
    ]
    rows: list[list[Cell | str]] = []
    for each in found.workers:
        worker = each.worker
        most = NONE if worker.concurrency is None else str(worker.concurrency)
        rows.append(
            [
                worker.pk,
                Cell(each.condition, _CONDITION_STYLES.get(each.condition, "yellow")),
                f"{each.active_jobs}/{most}",
                age(worker.seen_at, now),
                *([worker.pool or NONE] if has_pools else []),
                ",".join(each.queues),
                worker.hostname or NONE,
                NONE if worker.pid is None else str(worker.pid),
                ",".join(map(str, worker.labels)) or NONE,
            ]
        )
    console.table(columns, rows)
    if found.total > len(found.workers):
        more = found.total - len(found.workers)
        console.line(_("Workers that are not shown: %(more)s (--limit).") % {"more": grouped(more)})
    return OK


def _stats_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--watch",
        nargs="?",
        type=duration,
        const=duration("2s"),
        metavar="INTERVAL",
        help=_("show it again every two seconds, or at this interval, until Ctrl-C"),
    )
    parser.add_argument(
        "--queue",
        action="append",
        default=[],
        metavar="NAME",
        help=_("this queue; may be repeated"),
    )
    add_limit(
        parser,
        20,
        _(
            "the number of queues; those with a configuration are always shown "
            "(default: %(default)d)"
        ),
    )


SUBCOMMANDS: Final = (
    Subcommand(
        name="stats",
        help=gettext_lazy("jobs by queue and state, rates, pressure and workers"),
        description=gettext_lazy(
            "Show the queues, the fullest first. The numbers are stored "
            "counts: reading them costs the same with any number of jobs. "
            "Rates are means of the last five minutes."
        ),
        examples=gettext_lazy("""\
  manage.py ojs stats                          once
  manage.py ojs stats --watch                  again every two seconds, until Ctrl-C
  manage.py ojs stats --queue email --json     for a script"""),
        add_arguments=_stats_arguments,
        run=_stats,
    ),
    Subcommand(
        name="workers",
        help=gettext_lazy("the registered workers, and what they do"),
        description=gettext_lazy(
            "Show the workers. A stale one has sent no heartbeat in time; "
            "workers rescue its jobs and remove it."
        ),
        examples="""\
  manage.py ojs workers
  manage.py ojs workers --json""",
        add_arguments=lambda parser: add_limit(
            parser, 100, _("the number of workers (default: %(default)d)")
        ),
        run=_workers,
    ),
)
