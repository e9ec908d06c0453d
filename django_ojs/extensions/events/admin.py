"""Recorded events, newest first. Read only."""

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_ojs.admin import limit_key_text, payload_permission
from django_ojs.admin.base import OperatorModelAdmin, read_page
from django_ojs.admin.panels import Panel
from django_ojs.admin.query_timeout import TimedQueries, timed_queries
from django_ojs.conf import settings
from django_ojs.extensions.events import storage as events
from django_ojs.extensions.events.models import Event
from django_ojs.models import Job
from django_ojs.operations import keyset
from django_ojs.operations.jobs.redaction import HIDDEN, redacted
from django_ojs.operations.keyset import Page, PageRequest
from django_ojs.operations.queues import QueueStatus
from django_ojs.spec.published import EventType

#: The most rows that a page with a filter by type reads, because no index covers the type.
SCAN_LIMIT: Final = 100_000

#: Members of an event's data that hold a job's payload. So may any other member that is an object.
_PAYLOAD: Final = frozenset(
    {"args", "meta", "result", "error", "last_error", "progress", "data", "tenant_id"}
)

#: Members that the columns of the list show.
_IN_COLUMNS: Final = frozenset({"job_id", "queue"})

#: How many members of an event's data are shown, and how many characters of each.
_MAX_MEMBERS: Final = 30
_MAX_LENGTH: Final = 300

#: How many events the page of a job shows, and how many the page of a queue.
_MAX_OF_JOB: Final = 50
_MAX_OF_QUEUE: Final = 10

#: The prefix of the types of events whose subject is a limit key.
_OF_KEYS: Final = "rate_limit."


def _group(type: str) -> str:
    """Return the group of a type: its name up to the dot, dot included."""
    return type[: type.index(".") + 1]


_GROUPS: Final = sorted({_group(each) for each in EventType})


class EventAdmin(OperatorModelAdmin):
    """The events that are recorded (`OJS["KEEP_EVENTS"]`)."""

    place = 100

    def list_page(self, request: HttpRequest) -> HttpResponse:
        type, subject = request.GET.get("type", ""), request.GET.get("subject", "").strip()
        paging: dict[str, Any] = {}
        rows: list[Event] | None = []
        with timed_queries() as query:
            if _is_possible(type, subject):
                read = partial(_page, type, subject)
                page, paging = read_page(request, query, gettext_noop("events"), read)
                rows = None if page is None else page.rows
        visible = payload_permission.may_see(request)
        if rows:
            _hide_keys(request, rows)
            shown = [event for event in rows if not event.is_hidden]  # type: ignore[attr-defined]  # ours
            if subject and len(shown) < len(rows):
                # Otherwise the filter would tell the user that a hidden key exists.
                rows, paging = shown, {}
        return self.render(
            request,
            "events",
            _("Events"),
            {
                **paging,
                "rows": None
                if rows is None
                else [(event, data_of(event, visible=visible)) for event in rows],
                "groups": [
                    (group, [each for each in sorted(EventType) if _group(each) == group])
                    for group in _GROUPS
                ],
                "type": type,
                "subject": subject,
                "filters": type or subject,
                "unread": query.unread,
            },
        )


def _page(type: str, subject: str, wanted: PageRequest) -> Page[Event]:
    found = events.kept()
    if subject:
        found = found.filter(subject=subject)
    if type:
        found = found.filter(type__startswith=type) if type in _GROUPS else found.filter(type=type)
    # A rare type among millions of events must not make the page slow.
    among = events.kept() if type and not subject else None
    return keyset.page(found, {"-pk": int}, wanted, among=among, scan_limit=SCAN_LIMIT)


def _is_possible(type: str, subject: str) -> bool:
    """Return whether there can be an event of this type and subject."""
    return (
        (not type or type in {*EventType, *_GROUPS}) and "\0" not in subject and len(subject) <= 255
    )


def _hide_keys(request: HttpRequest, page: Iterable[Event]) -> None:
    """Hide the parts of limit keys that are arguments from users who may not see arguments."""
    for event in page:
        event.is_hidden = False  # type: ignore[attr-defined]  # for the template
        if event.type.startswith(_OF_KEYS):
            shown = limit_key_text.shown(request, event.subject)
            event.is_hidden = shown != event.subject  # type: ignore[attr-defined]  # as above
            event.subject, event.data = shown, {**event.data, "key": shown}


def data_of(event: Event, *, visible: bool) -> list[tuple[str, str]]:
    """Return the members of an event's data as text; those with payloads only if `visible`."""
    if not isinstance(event.data, dict):
        return []
    # With `*` no payload is visible anyway, and the other members are not part of the payload.
    data = event.data if "*" in settings().admin_redact else redacted(event.data)
    return [
        (
            str(name),
            HIDDEN
            if not visible and (name in _PAYLOAD or isinstance(value, dict))
            else _text(value),
        )
        for name, value in list(data.items())[:_MAX_MEMBERS]
        if name not in _IN_COLUMNS
    ]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        text = ", ".join(f"{name}: {member}" for name, member in value.items())
    elif isinstance(value, list):
        text = ", ".join(map(str, value))
    else:
        text = str(value)
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}…"


def _of_job(
    page: OperatorModelAdmin, request: HttpRequest, query: TimedQueries, job: Job
) -> dict[str, Any]:
    newest = events.kept().filter(subject=str(job.pk)).order_by("-id")[:_MAX_OF_JOB]
    return {"events": query(gettext_noop("events"), lambda: list(newest))}


def _of_queue(
    page: OperatorModelAdmin, request: HttpRequest, query: TimedQueries, queue: QueueStatus
) -> dict[str, Any]:
    newest = events.kept().filter(subject=queue.name).order_by("-id")[:_MAX_OF_QUEUE]
    found = query(gettext_noop("events"), lambda: list(newest))
    visible = payload_permission.has_permission(request)
    rows = None if found is None else [(each, data_of(each, visible=visible)) for each in found]
    return {"events": rows}


PANELS: Final = (
    Panel(kind=Job, read=_of_job, template="django_ojs/admin/job_events.html", place=90),
    Panel(
        kind=QueueStatus, read=_of_queue, template="django_ojs/admin/queue_events.html", place=90
    ),
)
