"""The audit trail: what operators have done, over the admin, over HTTP and over a shell."""

from dataclasses import replace
from functools import partial
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop

from django_ojs.admin import audit_search, limit_key_text
from django_ojs.admin.audit_rows import row_of
from django_ojs.admin.audit_search import SCAN_LIMIT, AuditSearch
from django_ojs.admin.base import OperatorModelAdmin
from django_ojs.admin.query_timeout import TimedQueries, timed_queries
from django_ojs.conf import settings
from django_ojs.extensions import audit
from django_ojs.models import ActorKind
from django_ojs.models.audit_entry import AuditEntry

PER_PAGE: Final = 50

#: The lists, each with its label and the kinds of actors; none are all.
_LISTS: Final[dict[str, tuple[Any, tuple[ActorKind, ...]]]] = {
    "people": (gettext_lazy("People"), audit_search.PEOPLE),
    "programs": (gettext_lazy("Programs"), audit_search.PROGRAMS),
    "all": (gettext_lazy("All"), ()),
}


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
            "actions": sorted(audit.ACTIONS),
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
        newest = audit.entries()
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


def _address(**parameters: str) -> str:
    return "?" + urlencode({name: value for name, value in parameters.items() if value})
