"""The list of jobs: a page of rows for a filter, with the states as tabs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.http import HttpRequest
from django.utils.http import urlencode
from django.utils.translation import gettext_noop, pgettext, pgettext_lazy

from django_ojs import hooks
from django_ojs.admin.base import read_page
from django_ojs.admin.formatting import StrOrPromise, duration
from django_ojs.admin.panels import AdminColumn, columns_of
from django_ojs.admin.query_timeout import TimedQueries
from django_ojs.handlers import parameters_of
from django_ojs.models import Job
from django_ojs.operations.jobs import listing, search_query
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.jobs.redaction import redacted, redacted_args
from django_ojs.operations.workers import registry
from django_ojs.spec import json
from django_ojs.spec.states import State
from django_ojs.spec.times import elapsed
from django_ojs.storage.figures import counts

#: A larger job has no preview of its arguments.
_PREVIEW_BYTES: Final = 16 * 1024
_PREVIEW_LENGTH: Final = 140

#: A worker's id of up to this many characters is shown in full; a longer one is shortened to its
#: last characters.
_SHORT_ID: Final = 16
_LAST_DIGITS: Final = 6

#: For each state its symbol, its colour, and what the time column shows: a word and a field.
_SHOWN: Final[dict[State, tuple[str, str, StrOrPromise, str]]] = {
    State.SCHEDULED: ("◷", "", pgettext_lazy("before a time", "due"), "due_at"),
    State.PENDING: ("◌", "", pgettext_lazy("before a duration", "pending"), "created_at"),
    State.AVAILABLE: ("●", "", pgettext_lazy("before a duration", "waiting"), "enqueued_at"),
    State.ACTIVE: ("▶", "blue", pgettext_lazy("before a duration", "running"), "started_at"),
    State.RETRYABLE: ("↻", "fair", pgettext_lazy("before a time", "due"), "due_at"),
    State.COMPLETED: ("✓", "good", pgettext_lazy("before a time", "finished"), "finished_at"),
    State.CANCELLED: ("⊘", "", pgettext_lazy("before a time", "cancelled"), "finished_at"),
    State.DISCARDED: ("✕", "bad", pgettext_lazy("before a time", "discarded"), "finished_at"),
}
_DISCARDED: Final[dict[str, StrOrPromise]] = {
    "expired": pgettext_lazy("before a time", "expired"),
    "dropped": pgettext_lazy("before a time", "dropped"),
    "operator": pgettext_lazy("before a time", "removed"),
}
#: For jobs in these states, the time column shows how long the state has lasted.
_LASTING: Final = (State.PENDING, State.AVAILABLE, State.ACTIVE)

#: The states, as a reader sees them.
STATE_WORDS: Final[dict[State, StrOrPromise]] = {
    State.SCHEDULED: pgettext_lazy("state of a job", "scheduled"),
    State.PENDING: pgettext_lazy("state of a job", "pending"),
    State.AVAILABLE: pgettext_lazy("state of a job", "available"),
    State.ACTIVE: pgettext_lazy("state of a job", "active"),
    State.RETRYABLE: pgettext_lazy("state of a job", "retryable"),
    State.COMPLETED: pgettext_lazy("state of a job", "completed"),
    State.CANCELLED: pgettext_lazy("state of a job", "cancelled"),
    State.DISCARDED: pgettext_lazy("state of a job", "discarded"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Badge:
    """A state as a symbol, a word and a colour. `value` names it in a query string."""

    value: str
    symbol: str
    word: StrOrPromise
    level: str


#: How each state is shown; see `badge` for dead letters.
STATE_BADGES: Final = {
    state: Badge(value=state.value, symbol=symbol, word=STATE_WORDS[state], level=level)
    for state, (symbol, level, _word, _field) in _SHOWN.items()
}


@dataclass(frozen=True, kw_only=True, slots=True)
class JobTime:
    """The time that matters in a job's state. `form` is `age` ("12 s") or `ago` ("in 3 min")."""

    word: StrOrPromise
    moment: datetime | None
    form: str


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRow:
    job: Job
    badge: Badge
    time: JobTime
    preview: str
    message: str
    #: The progress of a running job that reports it.
    share: float | None
    #: How long its latest run took, or how long it waited for its current run, in words.
    lasted: str
    #: The label and the id of its worker; see `worker_name`.
    worker: str
    #: What a scheduled job waits for, if an extension knows more than the due time.
    waits_for: str
    #: Its cells in the columns of extensions.
    cells: Sequence[tuple[AdminColumn, Any]] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Tab:
    """A state to filter by, or all. `number` is None if the counters do not know it."""

    badge: Badge | None
    query: str
    number: int | None
    current: bool


def badge(job: Job) -> Badge:
    shown = STATE_BADGES[State(job.state)]
    return (
        replace(shown, word=pgettext("state of a job", "dead letter")) if job.dead_letter else shown
    )


def job_time(job: Job) -> JobTime:
    state = State(job.state)
    word, field = _SHOWN[state][2:]
    if state is State.DISCARDED:
        word = _DISCARDED.get(job.discard_reason or "", word)
    form = "age" if state in _LASTING else "ago"
    return JobTime(word=word, moment=getattr(job, field), form=form)


def page(
    request: HttpRequest, query: TimedQueries, which: JobFilter, *, payload: bool
) -> dict[str, Any]:
    """Return the context of the page of the list that the URL asks for."""
    scans = listing.index_scans(which)
    read = partial(listing.list_jobs, which)
    found, paging = read_page(request, query, gettext_noop("jobs"), read)
    count = found.count if found else partial(listing.count, which)
    total = query(gettext_noop("number of jobs"), count)
    jobs = found.rows if found else []
    columns, cells = columns_of(Job, query, {job.pk: job for job in jobs})
    rows = _rows(query, jobs, payload=payload)
    return {
        **paging,
        "columns": columns,
        "rows": [replace(row, cells=cells[row.job.pk]) for row in rows],
        "total": total[0] if total else None,
        "more": total[1] if total else False,
        "scan_limit": min(scan.limit for scan in scans),
        "complete": all(scan.whole for scan in scans),
    }


def _rows(query: TimedQueries, jobs: Sequence[Job], *, payload: bool) -> list[JobRow]:
    arguments = None
    if payload and jobs:
        arguments = query(gettext_noop("arguments"), lambda: previews(jobs))
    running = shares(query, jobs)
    workers = {job.worker_id for job in jobs if job.worker_id and not job.error}
    labels = query(gettext_noop("workers"), lambda: registry.first_labels(workers)) or {}
    waiting = query(gettext_noop("what jobs wait for"), lambda: hooks.waits_for(jobs)) or {}
    return [
        _row(
            job,
            (arguments or {}).get(job.pk, ""),
            payload,
            share=running.get(job.pk),
            waits_for=waiting.get(job.pk, ""),
            worker=worker_name(job.worker_id or "", labels),
        )
        for job in jobs
    ]


def _row(
    job: Job, preview: str, payload: bool, *, share: float | None, waits_for: str, worker: str
) -> JobRow:
    error = redacted(job.error) if payload else None
    message = str(error.get("message", ""))[:_PREVIEW_LENGTH] if isinstance(error, dict) else ""
    return JobRow(
        job=job,
        badge=badge(job),
        time=job_time(job),
        preview=preview,
        message=message,
        share=share,
        lasted=_lasted(job),
        worker=worker,
        waits_for=waits_for,
    )


def worker_name(worker_id: str, labels: Mapping[str, str]) -> str:
    """Return a worker's label and its id, or the end of a long id."""
    end = worker_id if len(worker_id) <= _SHORT_ID else f"…{worker_id[-_LAST_DIGITS:]}"
    label = labels.get(worker_id, "")
    return f"{label} {end}" if label else end


def _lasted(job: Job) -> str:
    if job.state == State.ACTIVE:
        took = job.waited
        text = pgettext("a job before its run", "waited %(duration)s")
    elif job.started_at is None or job.finished_at is None or job.state == State.CANCELLED:
        return ""
    else:
        took = elapsed(job.started_at, job.finished_at)
        text = pgettext("a job", "ran %(duration)s")
    return text % {"duration": duration(took)} if took is not None else ""


def shares(query: TimedQueries, jobs: Sequence[Job]) -> dict[UUID, float]:
    """Return the progress of the jobs that are running and report it."""
    running = [job.pk for job in jobs if job.state == State.ACTIVE]
    if not running:
        return {}
    reported = Job.primary.filter(pk__in=running, progress__isnull=False)
    columns = ("pk", "run", "progress__run", "progress__progress")
    found = query(gettext_noop("progress"), lambda: list(reported.values_list(*columns))) or []
    return {
        key: share
        for key, run, reported_run, share in found
        if reported_run == run and share is not None
    }


def previews(jobs: Sequence[Job]) -> dict[UUID, str]:
    keys = [job.pk for job in jobs]
    small = Job.primary.filter(pk__in=keys, size_bytes__lt=_PREVIEW_BYTES)
    found = small.values_list("pk", "type", "args")
    return {
        key: _preview(redacted_args(args, parameters_of(type, args))) for key, type, args in found
    }


def _preview(args: Any) -> str:
    text = ", ".join(json.dumps(arg) for arg in args) if args else ""
    return text if len(text) <= _PREVIEW_LENGTH else f"{text[:_PREVIEW_LENGTH]}…"


def tabs(query: TimedQueries, which: JobFilter) -> list[Tab]:
    """Return a tab for all states and one for each, with numbers if the counters know them."""
    any_state = replace(which, states=(), states_excluded=None, dead_letter=None)
    numbers = total = None
    if any_state.counted:
        queues = [which.queue] if which.queue else None
        found = query(gettext_noop("counts"), lambda: counts.totals(queues)) or {}
        numbers, total = {state: found.get(state, 0) for state in State}, sum(found.values())
        if which.queue:
            # This includes dead letters that were moved to another queue, because the list shows
            # them too.
            discarded = replace(any_state, states=(State.DISCARDED,))
            numbers[State.DISCARDED] += query(gettext_noop("counts"), discarded.moved_out) or 0
    all_tab = Tab(
        badge=None,
        query=filter_query(any_state),
        number=total,
        current=not which.states and which.dead_letter is None,
    )
    return [
        all_tab,
        *(
            Tab(
                badge=badge,
                query=filter_query(replace(any_state, states=(state,))),
                number=None if numbers is None else numbers[state],
                current=which.states == (state,),
            )
            for state, badge in STATE_BADGES.items()
        ),
    ]


def filter_query(which: JobFilter) -> str:
    """Return the query string of the list for a filter."""
    text = search_query.render(which)
    return "?" + urlencode({"q": text}) if text else "?"
