"""Events: what happened, newest first. Read only."""

from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.http import urlencode

from django_ojs.admin import payloads
from django_ojs.admin.base import Pages
from django_ojs.admin.query_timeout import Asking, asking
from django_ojs.models import Event
from django_ojs.spec.events import CATALOGUE
from django_ojs.storage import events

PER_PAGE: Final = 50

#: Rows that a filter without an index of its own may pass over for one page.
LOOK: Final = 100_000

#: What events carry of a job's payload; whatever else is an object is taken for one of these.
_PAYLOAD: Final = frozenset({"args", "meta", "result", "error", "last_error", "progress", "data"})

#: What the columns of the list say already.
_SAID: Final = frozenset({"job_id", "queue"})

#: Members of an event's data that are shown, and characters of one of them.
_MEMBERS: Final = 30
_LONGEST: Final = 300

_LARGEST: Final = 2**63 - 1


class EventPages(Pages):
    """The events that were kept (`OJS["KEEP_EVENTS"]`)."""

    def list_page(self, request: HttpRequest) -> HttpResponse:
        """Show a page of them; each page is an address that stays."""
        type, subject = request.GET.get("type", ""), request.GET.get("subject", "").strip()
        before = _key(request.GET.get("before", ""))
        with asking() as ask:
            page, further = _page(ask, type, subject, before)
        filters = {name: each for name, each in (("type", type), ("subject", subject)) if each}
        visible = payloads.may_see(request)
        return self.render(
            request,
            "events",
            "Events",
            {
                "rows": None if page is None else [(event, told(event, visible)) for event in page],
                "types": sorted(CATALOGUE),
                "type": type,
                "subject": subject,
                "filters": filters,
                "newest": f"?{urlencode(filters)}" if before != _LARGEST else "",
                "older": f"?{urlencode({**filters, 'before': str(further)})}" if further else "",
                "skipped": bool(further and page is not None and len(page) < PER_PAGE),
                "unknown": ask.unknown,
                "looked_at": timezone.now(),
            },
        )


def _page(
    ask: Asking, type: str, subject: str, before: int
) -> tuple[list[Event] | None, int | None]:
    """Return a page, and before which id the next one begins; None: there is none."""
    found = events.kept().filter(pk__lt=before)
    if subject:
        if "\0" in subject or len(subject) > 255:
            return [], None
        found = found.filter(subject=subject)
    least = 0
    if type:
        # A rare type among millions must not make a page long: the next one looks further back.
        newest = ask("events", lambda: _newest(before))
        least = max(0, (newest or 0) - LOOK)
        found = found.filter(type=type) if type in CATALOGUE else found.none()
        if not subject:
            found = found.filter(pk__gt=least)
    rows = ask("events", lambda: list(found.order_by("-pk")[: PER_PAGE + 1]))
    if rows is None:
        return None, None
    if len(rows) > PER_PAGE:
        return rows[:PER_PAGE], rows[PER_PAGE - 1].pk
    more = bool(type and not subject and type in CATALOGUE and least)
    return rows, least + 1 if more else None


def _newest(before: int) -> int | None:
    rows = events.kept().filter(pk__lt=before).order_by("-pk")
    return rows.values_list("pk", flat=True).first()


def _key(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and 0 < len(text) < 19 else _LARGEST


def told(event: Event, visible: bool) -> list[tuple[str, str]]:
    """Return what an event says, by name; what it says of payloads only if it may be seen."""
    if not isinstance(event.data, dict):
        return []
    shown = payloads.redacted(event.data)
    return [
        (
            str(name),
            payloads.HIDDEN
            if not visible and (name in _PAYLOAD or isinstance(value, dict))
            else _text(value),
        )
        for name, value in list(shown.items())[:_MEMBERS]
        if name not in _SAID
    ]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        shown = ", ".join(f"{name}: {each}" for name, each in value.items())
    elif isinstance(value, list):
        shown = ", ".join(map(str, value))
    else:
        shown = str(value)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"


__all__ = ["EventPages", "told"]
