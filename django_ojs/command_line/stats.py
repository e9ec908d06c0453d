"""`stats`: the numbers and rates of jobs, by queue and state."""

from argparse import ArgumentParser
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from signal import SIGINT, SIGTERM
from typing import Final, TypeVar

from django.db import Error, connections
from django.utils import timezone

from django_ojs import formatting
from django_ojs.command_line.console import NONE, Console
from django_ojs.command_line.lists import ListColumn, column, members, write_list
from django_ojs.command_line.queues import known_queue
from django_ojs.command_line.subcommand import OK, Options, Subcommand, add_limit, duration
from django_ojs.formatting import grouped
from django_ojs.operations import queues
from django_ojs.operations.maintenance import mode
from django_ojs.operations.maintenance.mode import MaintenanceStatus
from django_ojs.reports import queue_overview
from django_ojs.reports.queue_overview import Listeners, OverviewRow
from django_ojs.spec.states import State
from django_ojs.spec.times import format_timestamp
from django_ojs.storage import database
from django_ojs.storage.figures import counts, oldest_available
from django_ojs.storage.figures.counts import ByState
from django_ojs.worker.signal_handlers import signal_handlers
from django_ojs.worker.wakes import WakeEvent

T = TypeVar("T")

_SHOWN_STATES: Final = (State.AVAILABLE, State.SCHEDULED, State.RETRYABLE, State.ACTIVE)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Figures:
    """What `stats` shows; `at` is when it was read."""

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
        statuses = listing.rows
        more = listing.total - len(statuses)
    names = [status.name for status in statuses]
    listeners = queue_overview.listeners(statuses)
    oldest = oldest_available.oldest(names)
    return _Figures(
        at=timezone.now(),
        jobs=counts.totals(),
        listeners=listeners,
        maintenance=mode.status(),
        rows=queue_overview.overview(
            statuses,
            flows=queue_overview.flows(names),
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
                except Error as error:
                    if not database.is_unavailable(error):
                        raise
                    reason = database.unavailable_reason(error)
                    console.note(f"The database does not respond ({reason}); trying again.")
                    connections.close_all()
            if stop.wait(options["watch"].total_seconds()):
                return OK


def _show(console: Console, figures: _Figures) -> None:
    if not console.as_json:
        _show_totals(console, figures)
    if (
        write_list(
            console,
            "queues",
            _queue_columns(figures),
            figures.rows,
            none="No queue has had a job yet.",
            at=format_timestamp(figures.at),
            jobs={state.value: figures.jobs.get(state, 0) for state in State},
            workers={"total": figures.listeners.total, "stale": figures.listeners.stale},
            maintenance_mode=figures.maintenance.enabled,
            more_queues=figures.more,
        )
        and figures.more
    ):
        console.line(
            f"Queues that are not shown: {grouped(figures.more)} (--limit, or --queue NAME)."
        )


def _show_totals(console: Console, figures: _Figures) -> None:
    jobs = ", ".join(f"{grouped(figures.jobs.get(state, 0))} {state}" for state in State)
    workers = figures.listeners
    stale = f", {workers.stale} stale" if workers.stale else ""
    console.line(formatting.absolute_time(figures.at), "bold")
    console.line(f"Jobs: {jobs}")
    console.line(f"Workers: {workers.total}{stale}", "bold red" if stale else "")
    if figures.maintenance.enabled:
        console.line(
            f"Maintenance mode is on: {figures.maintenance.reason or NONE}",
            "bold red",
        )
    console.line()


def _queue_columns(figures: _Figures) -> list[ListColumn[OverviewRow]]:
    def jobs(row: OverviewRow) -> dict[str, int]:
        return {state.value: row.status.counts.get(state, 0) for state in State}

    def pressure(row: OverviewRow) -> str:
        return NONE if row.pressure is None else f"{row.pressure:.0%}"

    def in_state(state: State) -> ListColumn[OverviewRow]:
        return ListColumn(
            name=state.value,
            value=lambda row: jobs(row)[state],
            kind="number",
            only="table",
            drops=2 if state is State.SCHEDULED else 0,
        )

    return [
        column("name"),
        column("state", "state", "status.state"),
        *members("depth"),
        ListColumn(name="jobs", value=jobs, only="json"),
        *map(in_state, _SHOWN_STATES),
        column("enqueued_per_minute", "number", "flow.came_per_minute", title="IN/MIN"),
        column("finished_per_minute", "number", "flow.went_per_minute", title="OUT/MIN"),
        ListColumn(
            name="oldest_available_at",
            value=lambda row: figures.oldest.get(row.name),
            kind="duration",
            title="OLDEST",
        ),
        *members("max_depth max_size_bytes", of="bound"),
        column("pressure", "number", words=pressure, drops=3),
        column("workers", "number", "listening", drops=1),
    ]


def _stats_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--watch",
        nargs="?",
        type=duration,
        const=duration("2s"),
        metavar="INTERVAL",
        help="repeat the output every two seconds, or at this interval, until Ctrl-C",
    )
    parser.add_argument(
        "--queue",
        action="append",
        default=[],
        metavar="NAME",
        help="show only this queue; may be repeated",
    )
    add_limit(
        parser,
        20,
        "the number of queues; those with a configuration are always shown (default: %(default)d)",
    )


SUBCOMMANDS: Final = (
    Subcommand(
        name="stats",
        help="jobs by queue and state, rates, pressure and workers",
        description=(
            "Show the queues, the fullest first. The numbers are stored "
            "counts: reading them costs the same with any number of jobs. "
            "Rates are means of the last five minutes."
        ),
        examples="""\
  manage.py ojs stats                          once
  manage.py ojs stats --watch                  again every two seconds, until Ctrl-C
  manage.py ojs stats --queue email --json     for a script""",
        add_arguments=_stats_arguments,
        run=_stats,
    ),
)
