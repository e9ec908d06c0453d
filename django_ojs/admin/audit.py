"""The audit trail: what operators have done, over the admin, over HTTP and over a shell."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from django.apps import apps
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop, pgettext

from django_ojs.admin import audit_search, limit_key_text
from django_ojs.admin.audit_search import SCAN_LIMIT, AuditSearch
from django_ojs.admin.base import OperatorModelAdmin
from django_ojs.admin.query_timeout import TimedQueries, timed_queries
from django_ojs.conf import settings
from django_ojs.models import ActorKind, AuditEntry
from django_ojs.operations.access import audit_trail
from django_ojs.operations.jobs.redaction import HIDDEN, redacted

PER_PAGE: Final = 50

#: Of one entry, the members that are shown, and the characters of each value.
_MAX_MEMBERS: Final = 30
_MAX_LENGTH: Final = 200

#: Members of the detail that are ids of jobs.
_JOBS: Final = ("job", "copy_of")

_LIMIT_KEY: Final = "limit_key"

#: The lists, each with its label and the kinds of actors; none are all.
_LISTS: Final[dict[str, tuple[Any, tuple[ActorKind, ...]]]] = {
    "people": (gettext_lazy("People"), audit_search.PEOPLE),
    "programs": (gettext_lazy("Programs"), audit_search.PROGRAMS),
    "all": (gettext_lazy("All"), ()),
}

#: The model that has the page of an object, by the type.
_MODELS: Final = {
    "queue": "queue",
    "job": "job",
    "cron_job": "cronjob",
    "api_key": "apikey",
    _LIMIT_KEY: "limitkey",
    "webhook": "webhook",
    "bulk_operation": "bulkoperation",
    "worker": "worker",
    "workflow": "workflow",
}
#: What ends the name of an action after which there is no object any more.
_ENDED: Final = (".deleted", ".removed")


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditRow:
    """An entry as the pages show it.

    `model` has the page of the object, if it has any; `jobs` are other jobs of the entry, each with
    a word. The queries find the entries with the same actor, action, object or day.
    """

    entry: AuditEntry
    object_kind: str
    object_name: str
    model: str
    changes: list[tuple[str, str, str]]
    detail: list[tuple[str, str]]
    jobs: list[tuple[str, str]]
    actor_query: str
    action_query: str
    object_query: str
    day_query: str


class AuditEntryAdmin(OperatorModelAdmin):
    """Read only: operations store the entries, and maintenance removes old ones."""

    def list_page(self, request: HttpRequest) -> HttpResponse:
        text = request.GET.get("q", "").strip()
        # People first: programs leave many more entries. A search is for all of them.
        given = request.GET.get("by", "")
        by = given if given in _LISTS else "all" if text else "people"
        search = replace(audit_search.parse(text), kinds=_LISTS[by][1])
        before = self._parse_key(request.GET.get("before", ""))
        rows: list[AuditEntry] | None = []
        older = None
        with timed_queries() as query:
            if not search.errors:
                rows, older = _page(query, search, before)
        shown = None
        if rows is not None:
            shown_key = partial(limit_key_text.shown, request)
            shown = [row_of(entry, search, shown_key=shown_key) for entry in rows]
            if search.object:
                # The search must not tell whether there is a hidden key.
                shown = [row for row in shown if row.object_query]
        context: dict[str, Any] = {
            "q": text,
            "errors": search.errors,
            "rows": shown,
            "qualifiers": audit_search.QUALIFIERS.values(),
            "actions": sorted(audit_trail.ACTIONS),
            "groups": [
                (label, _address(q=text, by=name), name == by)
                for name, (label, _) in _LISTS.items()
            ],
            "by": by,
            "newest": _address(q=text, by=given) if before else "",
            "older": _address(q=text, by=given, before=str(older)) if older else "",
            "incomplete": bool(older and rows is not None and len(rows) < PER_PAGE),
            "keeps": settings().keep_audit_entries,
            "unread": query.unread,
        }
        return self.render(request, "audit_trail", _("Audit trail"), context)


def _page(
    query: TimedQueries, search: AuditSearch, before: Any
) -> tuple[list[AuditEntry] | None, Any]:
    """Return a page, and the id before which the next page begins, if there is one."""
    found = search.entries()
    if before:
        found = found.filter(pk__lt=before)
    last = None
    if search.scans:
        newest = audit_trail.entries()
        if before:
            newest = newest.filter(pk__lt=before)
        keys = newest.order_by("-pk").values_list("pk", flat=True)
        end = query(gettext_noop("entries"), lambda: list(keys[SCAN_LIMIT : SCAN_LIMIT + 1]))
        if end is None:
            return None, None
        if end:
            last = end[0]
            found = found.filter(pk__gt=last)
    rows = query(gettext_noop("entries"), lambda: list(found.order_by("-pk")[: PER_PAGE + 1]))
    if rows is None:
        return None, None
    if len(rows) > PER_PAGE:
        return rows[:PER_PAGE], rows[PER_PAGE - 1].pk
    return rows, last


def row_of(
    entry: AuditEntry, search: AuditSearch | None = None, *, shown_key: Callable[[str], str] = str
) -> AuditRow:
    """Return an entry as the pages show it; its links narrow a search.

    `shown_key` returns a limit key as the user may see it.
    """
    search = search or AuditSearch()
    shown = entry.changes, entry.detail
    if "*" not in settings().admin_redact:
        shown = redacted(entry.changes), redacted(entry.detail)
    changes, detail = shown
    key = entry.object_id
    name = shown_key(key) if entry.object_type == _LIMIT_KEY else key
    is_hidden = name != key
    has_page = not entry.action.endswith(_ENDED) and key and not is_hidden
    day = timezone.localtime(entry.time).date()
    return AuditRow(
        entry=entry,
        object_kind=_kind(entry.object_type),
        object_name=_text(detail.get("key_prefix") or name),
        model=_MODELS.get(entry.object_type, "") if has_page else "",
        changes=[
            (name, _text(pair[0]), _text(pair[1])) if pair != HIDDEN else (name, HIDDEN, HIDDEN)
            for name, pair in list(changes.items())[:_MAX_MEMBERS]
        ],
        detail=[
            (name.replace("_", " "), _text(value))
            for name, value in list(detail.items())[:_MAX_MEMBERS]
            if name not in (*_JOBS, "key_prefix")
        ],
        jobs=[(name.replace("_", " "), str(detail[name])) for name in _JOBS if name in detail],
        actor_query=_query(replace(search, actor=entry.actor)),
        action_query=_query(replace(search, action=entry.action)),
        object_query=""
        if is_hidden or not key
        else _query(replace(search, object=f"{entry.object_type}/{key}")),
        day_query=_query(replace(search, day=day)),
    )


def _kind(object_type: str) -> str:
    model = _MODELS.get(object_type)
    if model is not None:
        return str(apps.get_model("django_ojs", model)._meta.verbose_name)
    kinds = {
        "maintenance": _("maintenance"),
        "outbox_entry": _("outbox entry"),
        "check": pgettext("of the doctor", "check"),
    }
    return kinds.get(object_type) or object_type.replace("_", " ")


def _address(**parameters: str) -> str:
    return "?" + urlencode({name: value for name, value in parameters.items() if value})


def _query(search: AuditSearch) -> str:
    return "?" + urlencode({"q": search.render()})


def _text(value: Any) -> str:
    if value is None or value in ("", []):
        return "—"
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}…"
