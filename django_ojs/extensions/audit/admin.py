"""The audit trail: what operators have done in the admin, over HTTP and in a shell."""

from dataclasses import replace
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop

from django_ojs.admin import limit_key_text
from django_ojs.admin.base import OperatorModelAdmin, read_page
from django_ojs.admin.query_timeout import timed_queries
from django_ojs.conf import of
from django_ojs.extensions.audit import admin_search as audit_search
from django_ojs.extensions.audit import storage as audit
from django_ojs.extensions.audit.admin_rows import AuditRow, row_of
from django_ojs.extensions.audit.admin_search import SCAN_LIMIT, AuditSearch
from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.extensions.audit.settings import AuditSettings
from django_ojs.models import ActorKind
from django_ojs.operations import keyset
from django_ojs.operations.keyset import Page, PageRequest

#: The lists, each with its label and its kinds of actors; a list without kinds shows all actors.
_LISTS: Final[dict[str, tuple[Any, tuple[ActorKind, ...]]]] = {
    "people": (gettext_lazy("People"), audit_search.PEOPLE),
    "programs": (gettext_lazy("Programs"), audit_search.PROGRAMS),
    "all": (gettext_lazy("All"), ()),
}


class AuditEntryAdmin(OperatorModelAdmin):
    """Read only: operations store the entries, and maintenance removes old ones."""

    place = 90

    def list_page(self, request: HttpRequest) -> HttpResponse:
        text = request.GET.get("q", "").strip()
        # People are shown first, because programs leave many more entries. A search covers both.
        given = request.GET.get("by", "")
        by = given if given in _LISTS else "all" if text else "people"
        search = replace(audit_search.parse(text), kinds=_LISTS[by][1])
        paging: dict[str, Any] = {}
        shown: list[AuditRow] | None = []
        with timed_queries() as query:
            if not search.errors:
                read = partial(_page, search)
                page, paging = read_page(request, query, gettext_noop("entries"), read)
                shown_key = partial(limit_key_text.shown, request)
                shown = None
                if page is not None:
                    shown = [row_of(each, search, shown_key=shown_key) for each in page.rows]
            if shown and search.object:
                # The search must not reveal whether there is a hidden key.
                shown = [row for row in shown if row.object_query]
        context: dict[str, Any] = {
            "q": text,
            **paging,
            "errors": search.errors or paging["errors"],
            "rows": shown,
            "qualifiers": audit_search.QUALIFIERS.values(),
            "actions": sorted(audit.ACTIONS),
            "groups": [
                (label, _address(q=text, by=name), name == by)
                for name, (label, _) in _LISTS.items()
            ],
            "by": by,
            "unsearched": bool(search.errors),
            "keeps": of(AuditSettings).keep_audit_entries,
            "unread": query.unread,
        }
        return self.render(request, "audit_trail", _("Audit trail"), context)


def _page(search: AuditSearch, wanted: PageRequest) -> Page[AuditEntry]:
    among = audit.entries() if search.scans else None
    return keyset.page(search.entries(), {"-pk": UUID}, wanted, among=among, scan_limit=SCAN_LIMIT)


def _address(**parameters: str) -> str:
    return "?" + urlencode({name: value for name, value in parameters.items() if value})
