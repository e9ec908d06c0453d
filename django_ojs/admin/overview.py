"""The overview: first what is wrong, then the queues."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from django import forms
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop, ngettext_lazy

from django_ojs.admin import navigation
from django_ojs.admin.actions import Action, Skipped
from django_ojs.admin.base import Button, OperatorModelAdmin
from django_ojs.admin.finding_remedies import remedies
from django_ojs.admin.panels import columns_of
from django_ojs.admin.query_timeout import TimedQueries, timed_queries
from django_ojs.finding import Finding
from django_ojs.hooks import registry
from django_ojs.models import Incident, Overview, Queue
from django_ojs.operations.maintenance import mode
from django_ojs.operations.queues import QueueStatus
from django_ojs.reports import current_findings, incidents, latest_runs, verdict
from django_ojs.reports.current_findings import CurrentFindings
from django_ojs.reports.findings import by_kind, worst_first
from django_ojs.reports.health_queries import maintained
from django_ojs.spec.scopes import Scope
from django_ojs.spec.states import WAITING, State
from django_ojs.storage.figures import counts
from django_ojs.storage.figures.counts import ByState

#: The most queues on the overview; the list of queues has all of them.
MAX_ROWS: Final = 12
#: The most kinds whose first incident is shown, and the most others in each folded list.
_MAX_INCIDENTS: Final = 5
_MAX_OTHERS: Final = 20
#: The most ended incidents that are shown.
_MAX_OVER: Final = 5
#: The minutes in the sparkline of an incident.
_INCIDENT_MINUTES: Final = 15
#: The most remedies of an incident: usually a button and a link.
_MAX_REMEDIES: Final = 2


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
        """Show the page; with `?live=1`, only the region that is refreshed every two seconds."""
        overview, is_live = Overview(pk="1"), "live" in request.GET
        if is_live:
            # The buttons lead back to the page, not the region.
            request.META = {**request.META, "QUERY_STRING": ""}
        with timed_queries() as query:
            now = timezone.now()
            known = query(gettext_noop("incidents"), incidents.rows)
            found = current_findings.read(query)
            is_complete = known is not None and not query.unread
            before = known or {}
            over = incidents.ended(before, found.findings, now=now, are_complete=is_complete)
            context = _context(query, found) | {"over": _over(query, over[:_MAX_OVER])}
            if not is_live:
                context["panels"] = self.panels(request, query, overview)
            explained = query(
                gettext_noop("incidents"),
                lambda: incidents.explained(before, found.findings, now),
            )
            found = replace(found, findings=explained or found.findings)
        incidents.write(before, found.findings, now=now, are_complete=is_complete)
        causes = found.causes
        navigation.remember_findings(causes, are_complete=is_complete)
        context |= self._incidents(
            request,
            [incidents.since(each, before.get(each.identity), now) for each in causes],
            context["cells"],
        )
        overview.in_maintenance = (  # type: ignore[attr-defined]  # for `applies_to`
            found.maintenance is not None and found.maintenance.enabled
        )
        context["is_overview"] = True
        context["buttons"] = self.buttons(request, overview)
        template = "overview_now" if is_live else "overview"
        return self.render(request, template, _("Overview"), context)

    def _incidents(
        self, request: HttpRequest, found: Sequence[Finding], cells: Mapping[str, Any]
    ) -> dict[str, Any]:
        def shown(finding: Finding, others: Sequence[Finding] = ()) -> ShownIncident:
            return ShownIncident(
                finding=finding,
                remedies=remedies(self, request, finding)[:_MAX_REMEDIES],
                cells=cells.get(finding.queue, ()) if finding.queue else (),
                others=[shown(each) for each in others[:_MAX_OTHERS]],
                more=max(0, len(others) - _MAX_OTHERS),
            )

        kinds = by_kind(worst_first([each for each in found if each.is_incident]))
        rest = [each for kind in kinds[_MAX_INCIDENTS:] for each in kind]
        return {
            "incidents": [shown(first, others) for first, *others in kinds[:_MAX_INCIDENTS]],
            "other_incidents": [shown(each) for each in rest[:_MAX_OTHERS]],
            "more_incidents": max(0, len(rest) - _MAX_OTHERS),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownIncident:
    """A finding with its remedies, and others of its kind; `more` further ones are left out.

    `cells` are the cells of its queue in the columns of extensions.
    """

    finding: Finding
    remedies: Sequence[Button]
    cells: Sequence[Any]
    others: Sequence["ShownIncident"]
    more: int


def _over(query: TimedQueries, rows: Sequence[Incident]) -> list[tuple[Incident, int | None]]:
    """Return ended incidents, each with how many runs its queue has completed since then."""
    since = {(row.queue, row.type): row.ended_at for row in rows if row.queue and row.ended_at}
    numbers: Mapping[Any, int] = {}
    if since:
        completed = query(
            gettext_noop("runs since"), lambda: registry.brought("completed_since", since)
        )
        numbers = dict(completed or ())
    return [(row, numbers.get((row.queue, row.type))) for row in rows]


def _sums(queues: Iterable[QueueStatus]) -> ByState:
    """Return how many jobs all these queues have, by state."""
    total: Counter[State] = Counter()
    for each in queues:
        total.update(each.counts)
    return dict(total)


def _context(query: TimedQueries, found: CurrentFindings) -> dict[str, Any]:
    listing, workers = found.listing, found.queues.listening
    jobs = (
        _sums(listing.rows)
        if listing and listing.total == len(listing.rows)
        else query(gettext_noop("counts"), counts.totals)
    )
    shown = found.queues.rows[:MAX_ROWS]
    named = {each.queue for each in found.causes if each.queue}
    columns, cells = columns_of(Queue, query, {row.name: row for row in shown})
    # An incident shows the same columns for its queue, over a shorter time.
    lately = {
        row.name: replace(row, flow=row.flow.lately(_INCIDENT_MINUTES))
        for row in found.queues.rows
        if row.name in named
    }
    busy = [row.name for row in shown if row.status.counts.get(State.ACTIVE)]
    holders = query(gettext_noop("running jobs"), lambda: latest_runs.holders(busy)) if busy else {}
    return {
        "verdict": verdict.of(found, query(gettext_noop("failures"), maintained)),
        "known": jobs is not None,
        "queues_known": listing is not None and found.queues.are_known,
        "checked": len(listing.rows) if listing and listing.total > len(listing.rows) else None,
        "maintenance_mode": found.maintenance,
        "active": (jobs or {}).get(State.ACTIVE, 0),
        "waiting": sum((jobs or {}).get(state, 0) for state in WAITING),
        "rows": [
            (
                row,
                workers.slots_of[row.name] if workers else None,
                (holders or {}).get(row.name),
                cells[row.name],
            )
            for row in shown
        ],
        "columns": columns,
        "cells": columns_of(Queue, query, lately)[1] if lately else {},
        "waits_since": min((found.oldest or {}).values(), default=None),
        "more_queues": max(0, listing.total - len(shown)) if listing else 0,
        "workers": workers,
        "unread": query.unread,
    }
