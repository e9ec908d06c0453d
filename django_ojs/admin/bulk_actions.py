"""What can be done to all jobs of a filter, and the page that asks before it is ordered."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

from django_ojs.admin import search_query
from django_ojs.models.bulk_operation import Action
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.spec.scopes import Scope
from django_ojs.spec.states import TERMINAL, State, Trigger, sources

if TYPE_CHECKING:
    from django_ojs.admin.base import Pages


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """One thing that can be done to all of them, and in which states."""

    action: Action
    needs: Scope
    states: frozenset[State]
    destructive: bool
    says: str


ORDERS: Final[dict[str, Order]] = {
    order.action.value: order
    for order in (
        Order(
            action=Action.RETRY,
            needs=Scope.OPERATOR,
            states=frozenset({State.DISCARDED}),
            destructive=False,
            says="Discarded jobs become available again, each with all its attempts.",
        ),
        Order(
            action=Action.CANCEL,
            needs=Scope.OPERATOR,
            states=frozenset(sources(Trigger.CANCEL, State.CANCELLED)),
            destructive=True,
            says="Jobs that are cancelled do not run again, and cannot be brought back. "
            "Running ones are cancelled only if the search names state:active.",
        ),
        Order(
            action=Action.DELETE,
            needs=Scope.ADMIN,
            states=TERMINAL,
            destructive=True,
            says="Jobs that have ended go for good, with arguments, results and errors.",
        ),
    )
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A link to the page that asks."""

    label: str
    address: str
    destructive: bool


def choices(
    page: "Pages", request: HttpRequest, which: JobFilter, *, what: str = "all matching"
) -> Sequence[Choice]:
    """Return what this user may do to all jobs of a filter; nothing if it leaves no job out."""
    if which.empty:
        return ()
    try:
        return [
            Choice(
                label=f"{order.action.label} {what}",
                address=_address(page, order, which),
                destructive=order.destructive,
            )
            for order in ORDERS.values()
            if page.may_have(request, order.needs)
            and (not which.states or not order.states.isdisjoint(which.states))
            and (not which.dead_letter or State.DISCARDED in order.states)
        ]
    except NoReverseMatch:  # A site without the page.
        return ()


def _address(page: "Pages", order: Order, which: JobFilter) -> str:
    address = reverse(
        "admin:django_ojs_bulkoperation_order",
        args=[order.action.value],
        current_app=page.admin_site.name,
    )
    return f"{address}?{urlencode({'q': search_query.write(which)})}"


__all__ = ["ORDERS", "Choice", "Order", "choices"]
