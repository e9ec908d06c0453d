"""The actions on all jobs of a filter, and the buttons that lead to their confirmation pages."""

from dataclasses import dataclass
from typing import Final

from django.http import HttpRequest
from django.urls import NoReverseMatch
from django.utils.http import urlencode
from django.utils.translation import gettext_lazy

from django_ojs.admin.base import Button, OperatorModelAdmin
from django_ojs.admin.formatting import StrOrPromise
from django_ojs.models.bulk_operation import BulkActionName, BulkOperation
from django_ojs.operations.jobs import search_query
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.spec.scopes import Scope
from django_ojs.spec.states import TERMINAL, State, Trigger, sources


@dataclass(frozen=True, kw_only=True, slots=True)
class BulkAction:
    """An action on all jobs of a filter that are in one of `states`."""

    action: BulkActionName
    scope: Scope
    states: frozenset[State]
    destructive: bool
    consequence: StrOrPromise

    def applies_to(self, which: JobFilter) -> bool:
        """Return whether the filter can match a job in one of the states."""
        return (not which.states or not self.states.isdisjoint(which.states)) and (
            not which.dead_letter or State.DISCARDED in self.states
        )


BULK_ACTIONS: Final[dict[str, BulkAction]] = {
    bulk_action.action.value: bulk_action
    for bulk_action in (
        BulkAction(
            action=BulkActionName.RETRY,
            scope=Scope.OPERATOR,
            states=frozenset({State.DISCARDED}),
            destructive=False,
            consequence=gettext_lazy(
                "Discarded jobs become available again, with all their attempts."
            ),
        ),
        BulkAction(
            action=BulkActionName.RUN_NOW,
            scope=Scope.OPERATOR,
            states=frozenset(sources(Trigger.TIMER, State.AVAILABLE)),
            destructive=False,
            consequence=gettext_lazy(
                "Scheduled and retryable jobs become available before they are "
                "due. Their attempts stay as they are."
            ),
        ),
        BulkAction(
            action=BulkActionName.CANCEL,
            scope=Scope.OPERATOR,
            states=frozenset(sources(Trigger.CANCEL, State.CANCELLED)),
            destructive=True,
            consequence=gettext_lazy(
                "A cancelled job does not run again and cannot be restored. "
                "Running jobs are cancelled only if the search names state:active."
            ),
        ),
        BulkAction(
            action=BulkActionName.DELETE,
            scope=Scope.ADMIN,
            states=TERMINAL,
            destructive=True,
            consequence=gettext_lazy(
                "Finished jobs are deleted permanently, with arguments, results and errors."
            ),
        ),
    )
}


def bulk_buttons(
    page: OperatorModelAdmin,
    request: HttpRequest,
    which: JobFilter,
    *names: str,
    what: str = "",
) -> list[Button]:
    """Return the buttons for all jobs of a filter, or none for a filter that matches every job.

    With `names`, only the buttons of these actions are returned. `what` names the jobs in the
    labels, if nothing beside the buttons says which jobs they are.
    """
    if which.empty:
        return []
    given = {"q": search_query.render(which), "next": request.get_full_path()}
    query = urlencode(given)
    try:
        return [
            Button(
                label=bulk_action.action.of(what) if what else bulk_action.action.label,
                url=f"{page.url('create', name, model=BulkOperation)}?{query}",
                destructive=bulk_action.destructive,
            )
            for name, bulk_action in BULK_ACTIONS.items()
            if page.has_scope(request, bulk_action.scope)
            and bulk_action.applies_to(which)
            and (not names or name in names)
        ]
    except NoReverseMatch:  # A site without the pages of bulk operations.
        return []
