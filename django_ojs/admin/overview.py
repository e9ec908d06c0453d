"""The overview: what is wrong first, then the queues."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from django import forms
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop, ngettext_lazy

from django_ojs.admin import navigation
from django_ojs.admin.actions import Action, Skipped
from django_ojs.admin.base import OperatorModelAdmin
from django_ojs.admin.finding_remedies import remedies
from django_ojs.admin.query_timeout import TimedQueries, timed_queries
from django_ojs.models import Overview
from django_ojs.operations.maintenance import mode
from django_ojs.reports import current_findings, incidents, verdict
from django_ojs.reports.findings import some_of_each_kind
from django_ojs.spec.scopes import Scope
from django_ojs.spec.states import WAITING, State
from django_ojs.storage.figures import counts

#: Queues of the overview; the list of queues has all of them.
MAX_ROWS: Final = 12
_MAX_FINDINGS: Final = 20


class MaintenanceForm(forms.Form):
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        required=False,
        max_length=mode.MAX_REASON,
        help_text=gettext_lazy("Shown while maintenance mode is on."),
    )


def _start(request: HttpRequest, obj: Any, values: Mapping[str, Any]) -> str:
    mode.enable(reason=values.get("reason") or None)
    return _("Maintenance mode is on: workers fetch no jobs.")


def _end(request: HttpRequest, obj: Any, values: Mapping[str, Any]) -> str:
    if not mode.status().enabled:
        raise Skipped(_("Maintenance mode is already off."))
    mode.disable()
    return _("Maintenance mode is off: workers fetch jobs again.")


def _start_consequences(request: HttpRequest, objects: Sequence[Any]) -> Sequence[str]:
    return (
        _("No job of any queue is fetched, and no scheduled or retryable job becomes available."),
        _("Enqueues are accepted, and running jobs continue."),
        _("It lasts until it is ended here or over HTTP."),
    )


class OverviewAdmin(OperatorModelAdmin):
    """One page; its actions are about all queues at once."""

    place = 0
    object_actions = (
        Action(
            name="start-maintenance",
            label=gettext_lazy("Start maintenance mode"),
            done=ngettext_lazy("%(count)d started", "%(count)d started", "count"),
            scope=Scope.ADMIN,
            run=_start,
            consequences=_start_consequences,
            form=MaintenanceForm,
            destructive=True,
            multiple=False,
            applies_to=lambda overview: not overview.in_maintenance,
        ),
        Action(
            name="end-maintenance",
            label=gettext_lazy("End maintenance mode"),
            done=ngettext_lazy("%(count)d ended", "%(count)d ended", "count"),
            scope=Scope.ADMIN,
            run=_end,
            multiple=False,
            applies_to=lambda overview: bool(overview.in_maintenance),
        ),
    )

    def objects_by_key(self, request: HttpRequest, keys: Iterable[str]) -> dict[str, Any]:
        # There is one object, and it is not stored.
        return {key: Overview(pk="1") if key == "1" else None for key in keys}

    def list_page(self, request: HttpRequest) -> HttpResponse:
        overview = Overview(pk="1")
        with timed_queries() as query:
            context = _context(query)
            context["panels"] = self.panels(request, query, overview)
        incidents.write(
            context["incidents"] or {},
            context["all_findings"],
            now=context["looked_at"],
            are_complete=context["incidents"] is not None and not context["unread"],
        )
        context["findings"] = [
            (finding, remedies(self, request, finding)) for finding in context["findings"]
        ]
        maintenance = context["maintenance_mode"]
        overview.in_maintenance = (  # type: ignore[attr-defined]  # for `applies_to`
            maintenance is not None and maintenance.enabled
        )
        context["is_overview"] = True
        context["buttons"] = self.buttons(request, overview)
        return self.render(request, "overview", _("Overview"), context)


def _context(query: TimedQueries) -> dict[str, Any]:
    now = timezone.now()
    known = query(gettext_noop("incidents"), incidents.rows)
    jobs = query(gettext_noop("counts"), counts.totals)
    found = current_findings.read(query)
    causes = found.causes
    navigation.remember_findings(causes, are_complete=not query.unread)
    listing, workers = found.listing, found.queues.listening
    wrong = [each for each in causes if each.is_incident]
    some = some_of_each_kind(wrong, _MAX_FINDINGS)
    shown = found.queues.rows[:MAX_ROWS]
    return {
        "verdict": verdict.of(found),
        "known": jobs is not None,
        "queues_known": listing is not None and found.queues.are_known,
        "checked": len(listing.rows) if listing and listing.total > len(listing.rows) else None,
        "findings": [incidents.since(each, (known or {}).get(each.identity), now) for each in some],
        "all_findings": causes,
        "looked_at": now,
        "incidents": known,
        "more_findings": len(wrong) - len(some),
        "maintenance_mode": found.maintenance,
        "active": (jobs or {}).get(State.ACTIVE, 0),
        "waiting": sum((jobs or {}).get(state, 0) for state in WAITING),
        "rows": [(row, row.oldest) for row in shown],
        "waits_since": min((found.oldest or {}).values(), default=None),
        "more_queues": max(0, listing.total - len(shown)) if listing else 0,
        "workers": workers,
        "unread": query.unread,
    }
