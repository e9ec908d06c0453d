"""The list of jobs: what was searched for, the states as tabs, a page of rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from django_ojs.admin import search_query
from django_ojs.admin.payloads import redacted
from django_ojs.admin.query_timeout import Asking
from django_ojs.models import Job
from django_ojs.operations.figures import stats
from django_ojs.operations.jobs import cursor, listing
from django_ojs.operations.jobs.cursor import Cursor
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.spec import json
from django_ojs.spec.errors import OJSError
from django_ojs.spec.states import State

PER_PAGE: Final = 50

#: Arguments of larger jobs are on their own page alone.
_PREVIEWED_BYTES: Final = 16 * 1024
_PREVIEW: Final = 140

#: A mark and a colour for each state; the word stands beside.
MARKS: Final[dict[State, tuple[str, str]]] = {
    State.SCHEDULED: ("◷", ""),
    State.PENDING: ("◌", ""),
    State.AVAILABLE: ("●", ""),
    State.ACTIVE: ("▶", "blue"),
    State.RETRYABLE: ("↻", "fair"),
    State.COMPLETED: ("✓", "good"),
    State.CANCELLED: ("⊘", ""),
    State.DISCARDED: ("✕", "bad"),
}

_SINCE: Final[dict[State, tuple[str, str]]] = {
    State.SCHEDULED: ("due", "due_at"),
    State.PENDING: ("pending", "created_at"),
    State.AVAILABLE: ("waiting", "enqueued_at"),
    State.ACTIVE: ("running", "started_at"),
    State.RETRYABLE: ("due", "due_at"),
    State.COMPLETED: ("finished", "finished_at"),
    State.CANCELLED: ("cancelled", "finished_at"),
    State.DISCARDED: ("discarded", "finished_at"),
}
_ENDED: Final = {"expired": "expired", "dropped": "dropped", "operator": "removed"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Badge:
    """A state as mark and word."""

    mark: str
    word: str
    level: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One job of the list. The time is told as `age` ("12 s") or `ago` ("2 h ago", "in 3 min")."""

    job: Job
    badge: Badge
    verb: str
    moment: datetime | None
    form: str
    preview: str = ""
    message: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tab:
    """A state to look at: how many there are, as far as the counts know."""

    badge: Badge | None
    address: str
    number: int | None
    here: bool


def badge(job: Job) -> Badge:
    """Return the badge of a job's state; of a dead letter it says so."""
    mark, level = MARKS[State(job.state)]
    return Badge(mark=mark, word="dead letter" if job.dead_letter else job.state, level=level)


def since(job: Job) -> tuple[str, datetime | None, str]:
    """Return what the time of a job means in its state, the time, and how it is told."""
    state = State(job.state)
    verb, field = _SINCE[state]
    if state is State.DISCARDED:
        verb = _ENDED.get(job.discard_reason or "", verb)
    form = "age" if verb in ("pending", "waiting", "running") else "ago"
    return verb, getattr(job, field), form


def page(
    ask: Asking, which: JobFilter, after: str, before: str, *, payload: bool
) -> dict[str, Any]:
    """Return a page of jobs for the template, and where to go on."""
    order = listing.order_of(which)
    complaints = []
    start: Cursor | None = None
    try:
        text = after or before
        start = cursor.read(text, order) if text else None
    except OJSError:
        complaints.append("This page is not there any more; here is the first one.")
    back = bool(before and not after) and start is not None
    found = ask(
        "jobs", lambda: listing.list_jobs(which, after=start, limit=PER_PAGE, backwards=back)
    )
    total = ask("number of jobs", lambda: listing.count(which))
    shown = found.jobs if found else []
    previews = ask("arguments", lambda: _previews(shown)) if payload and shown else {}
    older = cursor.write(found.end) if found and found.end and not back else ""
    if back and shown:
        older = cursor.write(cursor.of(shown[-1], order))
    newer = cursor.write(cursor.of(shown[0], order)) if shown and (start or back) else ""
    if back and found and found.end is None:
        newer = ""
    return {
        "rows": [_row(job, (previews or {}).get(job.pk, ""), payload) for job in shown],
        "known": found is not None,
        "looked": found.scanned if found else None,
        "started": start is not None,
        "older": older,
        "newer": newer,
        "total": total[0] if total else None,
        "more": total[1] if total else False,
        "complaints": complaints,
        "look": listing.SCAN_LIMIT,
        "whole": all(way.whole for way in listing.index_scans(which)),
    }


def _row(job: Job, preview: str, payload: bool) -> Row:
    verb, moment, form = since(job)
    error = redacted(job.error) if payload else None
    message = str(error.get("message", ""))[:_PREVIEW] if isinstance(error, dict) else ""
    return Row(
        job=job,
        badge=badge(job),
        verb=verb,
        moment=moment,
        form=form,
        preview=preview,
        message=message,
    )


def _previews(shown: Sequence[Job]) -> dict[UUID, str]:
    keys = [job.pk for job in shown]
    small = Job.primary.filter(pk__in=keys, size_bytes__lt=_PREVIEWED_BYTES)
    return {key: _short(args) for key, args in small.values_list("pk", "args")}


def _short(args: Any) -> str:
    text = ", ".join(json.dumps(each) for each in redacted(args)) if args else ""
    return text if len(text) <= _PREVIEW else f"{text[:_PREVIEW]}…"


def tabs(ask: Asking, which: JobFilter) -> list[Tab]:
    """Return a tab for each state, and one for all; with numbers where the counts know them."""
    numbers = None
    if replace(which, states=(), dead_letter=None).counted:
        by_queue = ask("counts", stats.by_queue) or {}
        wanted = [by_queue.get(which.queue, {})] if which.queue else list(by_queue.values())
        numbers = {state: sum(counts.get(state, 0) for counts in wanted) for state in State}
    found = [
        Tab(
            badge=None,
            address=address(replace(which, states=(), dead_letter=None)),
            number=None if numbers is None else sum(numbers.values()),
            here=not which.states and which.dead_letter is None,
        )
    ]
    for state, (mark, level) in MARKS.items():
        found.append(
            Tab(
                badge=Badge(mark=mark, word=state.value, level=level),
                address=address(replace(which, states=(state,), dead_letter=None)),
                number=None if numbers is None else numbers[state],
                here=which.states == (state,),
            )
        )
    return found


def address(which: JobFilter) -> str:
    """Return the query of a list's address."""
    text = search_query.write(which)
    return "?" + urlencode({"q": text}) if text else "?"


__all__ = ["MARKS", "PER_PAGE", "Badge", "Row", "Tab", "address", "badge", "page", "since", "tabs"]
