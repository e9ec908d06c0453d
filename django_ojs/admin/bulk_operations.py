"""Bulk operations: ordered after a question, followed with a bar, stopped with a button."""

from typing import Any, Final

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils import timezone

from django_ojs.admin import search_query
from django_ojs.admin.actions import Action, Skipped
from django_ojs.admin.base import Pages
from django_ojs.admin.bulk_actions import ORDERS, Order
from django_ojs.admin.job_actions import ChangesForm, changes, in_words
from django_ojs.admin.job_list import address
from django_ojs.admin.query_timeout import asking
from django_ojs.admin.search_access import discreet
from django_ojs.models import BulkOperation
from django_ojs.models.bulk_operation import BulkState
from django_ojs.operations.jobs import bulk_operations, filter_json, listing
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.spec.errors import OJSError
from django_ojs.spec.scopes import Scope

#: Operations on a page of the list.
PER_PAGE: Final = 50


class NoChanges(forms.Form):
    """Nothing to fill in."""


def _stop(request: HttpRequest, operation: BulkOperation, values: Any) -> str:
    if not bulk_operations.stop(operation.pk, by=request.user.get_username()):
        raise Skipped("The operation is over already.")
    return "Stopped. What was done stays done."


class BulkOperationPages(Pages):
    """The list is the audit trail: who did what to which jobs, and what came of it."""

    operations = (
        Action(
            name="stop",
            label="Stop",
            done="stopped",
            needs=Scope.OPERATOR,
            run=_stop,
            destructive=True,
            applies=lambda operation: operation.state in bulk_operations.OPEN,
        ),
    )

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Let those look who may look at jobs."""
        user: Any = request.user
        return bool(user.has_perm("django_ojs.view_job"))

    def get_urls(self) -> list[URLPattern]:
        """Add the page that asks."""
        order = path(
            "order/<slug:name>/",
            self.wrapped(self.order_view),
            name=self.named("order", prefixed=False),
        )
        return [order, *super().get_urls()]

    def found(self, request: HttpRequest, keys: Any) -> dict[str, Any]:
        """Return the operations of these numbers."""
        return {key: _read(str(key)) for key in keys}

    def list_page(self, request: HttpRequest) -> HttpResponse:
        """Show the newest."""
        before = request.GET.get("before", "")
        rows = bulk_operations.operations().order_by("-pk").defer("errors")
        if before.isascii() and before.isdigit() and len(before) < 16:
            rows = rows.filter(pk__lt=int(before))
        shown = list(rows[: PER_PAGE + 1])
        return self.render(
            request,
            "bulk_operations",
            "Bulk operations",
            {
                "rows": [_shown(operation) for operation in shown[:PER_PAGE]],
                "older": shown[PER_PAGE - 1].pk if len(shown) > PER_PAGE else None,
                "running": any(each.state in bulk_operations.OPEN for each in shown),
            },
        )

    def object_page(self, request: HttpRequest, key: str) -> HttpResponse:
        """Show one: how far it is, what was left alone and why."""
        operation = _read(key)
        if operation is None:
            raise Http404("There is no such operation; old ones are pruned.")
        return self.render(
            request,
            "bulk_operation",
            str(operation),
            {
                **_shown(operation),
                "buttons": self.buttons(request, operation),
                "reasons": sorted(operation.reasons.items(), key=lambda each: -each[1]),
                "running": operation.state in bulk_operations.OPEN,
                "looked_at": timezone.now(),
            },
        )

    def order_view(self, request: HttpRequest, name: str) -> HttpResponse:
        """Ask, and order. Raises PermissionDenied, Http404 for what cannot be ordered."""
        self._let_in(request)
        order = ORDERS.get(name)
        if order is None:
            raise Http404
        if not self.may_have(request, order.needs):
            raise PermissionDenied
        text = (request.POST if request.method == "POST" else request.GET).get("q", "")
        which = self._read_search(request, order, text)
        if which is None:
            return HttpResponseRedirect(self.back(request))
        kind = ChangesForm if which.dead_letter and name == "retry" else NoChanges
        form = kind(request.POST if request.method == "POST" else None)
        if request.method == "POST" and form.is_valid():
            try:
                ordered = bulk_operations.order(
                    order.action,
                    which,
                    by=request.user.get_username(),
                    changes=changes(form.cleaned_data),
                )
            except OJSError as error:
                form.add_error(None, error.message)
            else:
                self.log_addition(request, ordered, f"Ordered for {search_query.write(which)}.")
                return HttpResponseRedirect(self.address("change", ordered.pk))
        return self._ask(request, order, which, form)

    def _read_search(self, request: HttpRequest, order: Order, text: str) -> JobFilter | None:
        query = discreet(search_query.parse(text), payload=self.has_payload_permission(request))
        complaints = query.complaints
        if not complaints:
            try:
                bulk_operations.meant(order.action, query.filter)
            except OJSError as error:
                complaints = [error.message]
        for each in complaints:
            self.message_user(request, each, messages.ERROR)
        return None if complaints else query.filter

    def _ask(
        self, request: HttpRequest, order: Order, which: JobFilter, form: forms.Form
    ) -> HttpResponse:
        meant = bulk_operations.meant(order.action, which)
        with asking() as ask:
            number = ask("number of jobs", lambda: listing.count(meant))
        return self.render(
            request,
            "bulk_order",
            f"{order.action.label} all matching",
            {
                "order": order,
                "q": search_query.write(which),
                "jobs": address(which),
                "number": number[0] if number else None,
                "more": number[1] if number else False,
                "form": form,
                "next": self.back(request),
            },
        )


def _read(key: str) -> BulkOperation | None:
    if not (key.isascii() and key.isdigit() and len(key) < 16):
        return None
    return bulk_operations.operations().filter(pk=int(key)).first()


def _shown(operation: BulkOperation) -> dict[str, Any]:
    which = filter_json.read(operation.filter)
    over = operation.state not in bulk_operations.OPEN
    whole = max(operation.expected or 0, operation.matched)
    share = operation.matched / whole if whole and operation.expected is not None else None
    return {
        "operation": operation,
        "q": search_query.write(which),
        "jobs": address(which),
        "changes": in_words(operation.changes).removeprefix(", with "),
        "share": 1.0 if operation.state == BulkState.DONE else share,
        "over": over,
        "gone": max(0, (operation.expected or 0) - operation.matched)
        if operation.state == BulkState.DONE
        else 0,
    }


__all__ = ["BulkOperationPages"]
