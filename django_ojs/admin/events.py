"""Recorded events, newest first. Read only."""

from collections.abc import Iterable
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_ojs.admin import limit_key_text, payloads
from django_ojs.admin.base import OperatorModelAdmin
from django_ojs.admin.query_timeout import TimedQueries, timed_queries
from django_ojs.conf import settings
from django_ojs.models.event import Event
from django_ojs.operations.jobs.redaction import HIDDEN, redacted
from django_ojs.spec.published import EventType
from django_ojs.storage import events

PER_PAGE: Final = 50

#: Rows that a page with a filter by type reads, as no index covers the type.
SCAN_LIMIT: Final = 100_000

#: Members of an event's data that hold a job's payload; so may any other object.
_PAYLOAD: Final = frozenset(
    {"args", "meta", "result", "error", "last_error", "progress", "data", "tenant_id"}
)

#: Members that the columns of the list show.
_IN_COLUMNS: Final = frozenset({"job_id", "queue"})

#: Members of an event's data that are shown, and characters of each.
_MAX_MEMBERS: Final = 30
_MAX_LENGTH: Final = 300

#: Events with a limit key as their subject.
_OF_KEYS: Final = "rate_limit."

_LARGEST_KEY: Final = 2**63 - 1


class EventAdmin(OperatorModelAdmin):
    """The events that are recorded (`OJS["KEEP_EVENTS"]`)."""

    def list_page(self, request: HttpRequest) -> HttpResponse:
        type, subject = request.GET.get("type", ""), request.GET.get("subject", "").strip()
        before = self._parse_key(request.GET.get("before", ""))
        with timed_queries() as query:
            page, older = _page(query, type, subject, before or _LARGEST_KEY)
        filters = {name: text for name, text in (("type", type), ("subject", subject)) if text}
        visible = payloads.may_see(request)
        if page is not None:
            _hide_keys(request, page)
            if subject:
                # Otherwise the filter would tell whether there is a key.
                shown = [event for event in page if not event.is_hidden]  # type: ignore[attr-defined]  # ours
                page, older = shown, older if len(shown) == len(page) else None
        return self.render(
            request,
            "events",
            _("Events"),
            {
                "rows": None
                if page is None
                else [(event, data_of(event, visible=visible)) for event in page],
                "types": sorted(EventType),
                "type": type,
                "subject": subject,
                "filters": filters,
                "newest": f"?{urlencode(filters)}" if before else "",
                "older": f"?{urlencode({**filters, 'before': str(older)})}" if older else "",
                "incomplete": bool(older and page is not None and len(page) < PER_PAGE),
                "unread": query.unread,
            },
        )


def _page(
    query: TimedQueries, type: str, subject: str, before: int
) -> tuple[list[Event] | None, int | None]:
    """Return a page, and the id before which the next page begins, if there is one."""
    found = events.kept().filter(pk__lt=before)
    if subject:
        if "\0" in subject or len(subject) > 255:
            return [], None
        found = found.filter(subject=subject)
    oldest = 0
    if type:
        if type not in {*EventType}:
            return [], None
        found = found.filter(type=type)
        if not subject:
            # A rare type among millions of events must not make the page slow.
            newest = query(gettext_noop("events"), lambda: _newest(before))
            oldest = max(0, (newest or 0) - SCAN_LIMIT)
            found = found.filter(pk__gt=oldest)
    rows = query(gettext_noop("events"), lambda: list(found.order_by("-pk")[: PER_PAGE + 1]))
    if rows is None:
        return None, None
    if len(rows) > PER_PAGE:
        return rows[:PER_PAGE], rows[PER_PAGE - 1].pk
    return rows, oldest + 1 if oldest else None


def _hide_keys(request: HttpRequest, page: Iterable[Event]) -> None:
    """Hide the parts of limit keys that are arguments, from users who may not see these."""
    for event in page:
        event.is_hidden = False  # type: ignore[attr-defined]  # for the template
        if event.type.startswith(_OF_KEYS):
            shown = limit_key_text.shown(request, event.subject)
            event.is_hidden = shown != event.subject  # type: ignore[attr-defined]  # as above
            event.subject, event.data = shown, {**event.data, "key": shown}


def _newest(before: int) -> int | None:
    rows = events.kept().filter(pk__lt=before).order_by("-pk")
    return rows.values_list("pk", flat=True).first()


def data_of(event: Event, *, visible: bool) -> list[tuple[str, str]]:
    """Return the members of an event's data as text; those with payloads only if `visible`."""
    if not isinstance(event.data, dict):
        return []
    # With `*` no payload is visible, and the other members are no payload.
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
