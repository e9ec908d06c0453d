"""The pages of bulk operations: confirm and start one, watch its progress, stop it."""

from datetime import datetime
from functools import partial
from typing import Any, Final

from django import forms
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop, ngettext_lazy, pgettext

from django_ojs.admin import payload_permission
from django_ojs.admin.actions import Action, Skipped
from django_ojs.admin.base import OperatorModelAdmin, read_page
from django_ojs.admin.bulk_actions import BULK_ACTIONS, BulkAction
from django_ojs.admin.job_actions import ChangesForm, describe, overrides
from django_ojs.admin.job_list import filter_query
from django_ojs.admin.query_timeout import timed_queries
from django_ojs.handlers import positions
from django_ojs.models import BulkOperation
from django_ojs.models.bulk_operation import BulkState
from django_ojs.operations import keyset
from django_ojs.operations.jobs import bulk_operations, filter_json, listing, search_query
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.jobs.search_access import permitted
from django_ojs.operations.jobs.search_query import Search
from django_ojs.spec.errors import OJSError
from django_ojs.spec.scopes import Scope
from django_ojs.spec.states import TERMINAL, State

_READ_AT: Final = "django_ojs.admin.bulk_operations.read_at"


def _stop(request: HttpRequest, operation: BulkOperation, values: Any) -> str:
    if not bulk_operations.stop(operation.pk, by=request.user.get_username()):
        raise Skipped(_("The operation has already ended."))
    return _("Stopped. What it has done is not undone.")


class BulkOperationAdmin(OperatorModelAdmin):
    """The list says who did what to which jobs, and the result."""

    place = 80
    view_permission = "view_job"
    object_actions = (
        Action(
            name="stop",
            label=gettext_lazy("Stop"),
            done=ngettext_lazy("%(count)d stopped", "%(count)d stopped", "count"),
            scope=Scope.OPERATOR,
            run=_stop,
            destructive=True,
            applies_to=lambda operation: operation.state in bulk_operations.OPEN,
        ),
    )

    def get_urls(self) -> list[URLPattern]:
        return [
            self.pattern("create/<slug:name>/", self.create_view, "create"),
            *super().get_urls(),
        ]

    def list_page(self, request: HttpRequest) -> HttpResponse:
        operations: QuerySet[BulkOperation] = self.get_queryset(request).defer("errors")
        read = partial(keyset.page, operations, {"-pk": int})
        with timed_queries() as query:
            page, paging = read_page(request, query, gettext_noop("bulk operations"), read)
        rows = page.rows if page else []
        return self.render(
            request,
            "bulk_operations",
            _("Bulk operations"),
            {
                **paging,
                "rows": [_context(request, operation) for operation in rows],
                "running": any(row.state in bulk_operations.OPEN for row in rows),
                "unread": query.unread,
            },
        )

    def object_page(self, request: HttpRequest, key: str) -> HttpResponse:
        operation = self.get_object(request, key)
        if operation is None:
            raise Http404(_("There is no such bulk operation; old ones are pruned."))
        shared = _context(request, operation)
        with timed_queries() as query:
            retried = query(
                gettext_noop("retried jobs"), lambda: bulk_operations.retried(operation)
            )
        context = shared | {
            "retried": retried,
            "retried_links": _links(operation, retried),
            "unread": query.unread,
            "buttons": self.buttons(request, operation),
            "reasons": sorted(operation.reasons.items(), key=lambda each: -each[1]),
            "unchanged": operation.errors,
        }
        return self.render(request, "bulk_operation", str(operation), context)

    def create_view(self, request: HttpRequest, name: str) -> HttpResponse:
        """Confirm and create a bulk operation. Raises PermissionDenied, Http404."""
        self.check_view_permission(request)
        bulk_action = BULK_ACTIONS.get(name)
        if bulk_action is None:
            raise Http404
        if not self.has_scope(request, bulk_action.scope):
            raise PermissionDenied
        data = request.POST if request.method == "POST" else None
        which = self._filter(request, bulk_action, (data or request.GET).get("q", ""))
        if which is None:
            return HttpResponseRedirect(self.return_url(request))
        form = (ChangesForm if which.dead_letter and name == "retry" else forms.Form)(data)
        if form.is_valid():
            try:
                operation = bulk_operations.order(
                    bulk_action.action,
                    which,
                    by=request.user.get_username(),
                    changes=overrides(form.cleaned_data),
                    as_of=_read_at(request.POST.get("read_at", "")),
                )
            except OJSError as error:
                form.add_error(None, error.message)
            except signing.BadSignature:
                # Without this time, the operation could change jobs that the page did not count.
                form.add_error(
                    None, _("It is not known when this page was read. Check the jobs again.")
                )
            else:
                return HttpResponseRedirect(self.url("change", operation.pk))
        return self._confirmation_page(request, bulk_action, which, form)

    def _filter(self, request: HttpRequest, bulk_action: BulkAction, text: str) -> JobFilter | None:
        payload = payload_permission.has_permission(request)
        search = permitted(search_query.parse(text), payload=payload, positions=positions)
        which, errors = search.filter, search.errors
        if which is not None:
            try:
                bulk_operations.applicable(bulk_action.action, which)
            except OJSError as error:
                which, errors = None, [error.message]
        for message in errors:
            self.message_user(request, message, "ERROR")
        return which

    def _confirmation_page(
        self, request: HttpRequest, bulk_action: BulkAction, which: JobFilter, form: forms.Form
    ) -> HttpResponse:
        meant = bulk_operations.applicable(bulk_action.action, which)
        read_at = bulk_operations.moment()
        with timed_queries() as query:
            number = query(gettext_noop("number of jobs"), lambda: listing.count(meant))
        return self.render(
            request,
            "bulk_action",
            bulk_action.action.of(_("all matching")),
            {
                "bulk_action": bulk_action,
                "button_text": bulk_action.action.of(pgettext("jobs", "all")),
                "q": search_query.render(which),
                "jobs_query": filter_query(which),
                "read_at": signing.dumps(read_at.isoformat(), salt=_READ_AT),
                "number": number[0] if number else None,
                "more": number[1] if number else False,
                "form": form,
                "next": self.return_url(request),
            },
        )


def _read_at(signed: str) -> datetime | None:
    """Return when the confirmation page was read, or None if the request does not say when.

    A script can post without having read the page. Raises BadSignature.
    """
    if not signed:
        return None
    return datetime.fromisoformat(signing.loads(signed, salt=_READ_AT))


def _context(request: HttpRequest, operation: BulkOperation) -> dict[str, Any]:
    which = filter_json.read(operation.filter)
    # The values in a filter reveal what the payloads of jobs contain.
    search = permitted(
        Search(filter=which),
        payload=payload_permission.has_permission(request),
        positions=positions,
    )
    done = operation.state == BulkState.DONE
    total = max(operation.expected or 0, operation.matched)
    share = operation.matched / total if total and operation.expected is not None else None
    return {
        "operation": operation,
        "which": which,
        "hidden": " ".join(search.errors),
        "q": search_query.render(which),
        "jobs_query": filter_query(which),
        "changes": describe(operation.changes),
        # Jobs that match only after the count are processed too.
        "total": total,
        "share": 1.0 if done else share,
        "running": operation.state in bulk_operations.OPEN,
        "changed_before": max(0, (operation.expected or 0) - operation.matched) if done else 0,
    }


def _links(
    operation: BulkOperation, found: bulk_operations.Retried | None
) -> list[tuple[int, str, str]]:
    """Return how many retried jobs are in which states: number, label and query string of each."""
    if found is None:
        return []
    is_open = tuple(state for state in State if state not in TERMINAL)
    #: A number, what it counts, the states, and whether it is shown if it is 0.
    groups: tuple[tuple[int, str, tuple[State, ...], bool], ...] = (
        (found.completed, pgettext("retried jobs", "completed"), (State.COMPLETED,), True),
        (found.failed_again, pgettext("retried jobs", "failed again"), (State.DISCARDED,), True),
        (found.open, pgettext("retried jobs", "not ended"), is_open, False),
        (found.cancelled, pgettext("retried jobs", "cancelled"), (State.CANCELLED,), False),
    )
    return [
        (
            number,
            label,
            filter_query(
                JobFilter(by_extensions=(("retried_by", str(operation.pk)),), states=states)
            ),
        )
        for number, label, states, always in groups
        if number or always
    ]
