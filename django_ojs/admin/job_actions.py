"""What an operator does with jobs: what the state of each allows, and nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.http import HttpRequest

from django_ojs.admin.actions import Action
from django_ojs.conf import settings
from django_ojs.models import Job
from django_ojs.operations import activate, cancel, delete, retry
from django_ojs.operations.jobs import dead_letters
from django_ojs.spec.envelope import check_queue
from django_ojs.spec.errors import OJSError
from django_ojs.spec.scopes import Scope
from django_ojs.spec.states import TERMINAL, State, Trigger, sources

_CANCELLABLE = sources(Trigger.CANCEL, State.CANCELLED)


class ChangesForm(forms.Form):
    """What a dead letter is retried with (ojs-dead-letter §6.3). Empty: as it was."""

    queue = forms.CharField(required=False, max_length=255)
    priority = forms.IntegerField(required=False, min_value=-100, max_value=100)
    max_attempts = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=1000,
        label="Attempts",
        help_text="How often it may run; it begins with the first again.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            field.widget.attrs.setdefault("placeholder", "as it was")

    def clean_queue(self) -> str:
        """Check the name."""
        name = str(self.cleaned_data["queue"] or "")
        try:
            if name:
                check_queue(name, settings().limits)
        except OJSError as error:
            raise forms.ValidationError(error.message) from None
        return name


def changes(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a form asks for, as `dead_letter.retry` takes it."""
    wanted: dict[str, Any] = {}
    if values.get("queue"):
        wanted["queue"] = values["queue"]
    if values.get("priority") is not None:
        wanted["priority"] = values["priority"]
    if values.get("max_attempts") is not None:
        wanted["retry"] = {"max_attempts": values["max_attempts"]}
    return wanted


def in_words(wanted: Mapping[str, Any]) -> str:
    """Say what changes."""
    said = [f"{name} {wanted[name]}" for name in ("queue", "priority") if name in wanted]
    if "retry" in wanted:
        said.append(f"{wanted['retry']['max_attempts']} attempts")
    return f", with {', '.join(said)}" if said else ""


def _retry(request: HttpRequest, job: Job, values: Mapping[str, Any]) -> str:
    retry.retry(job.pk)
    return "Retried: the job is available again, with all its attempts."


def _retry_changed(request: HttpRequest, job: Job, values: Mapping[str, Any]) -> str:
    wanted = changes(values)
    dead_letters.retry(job.pk, override=wanted or None)
    return f"Retried{in_words(wanted)}: the job is available again, with all its attempts."


def _cancel(request: HttpRequest, job: Job, values: Mapping[str, Any]) -> str:
    _, before = cancel.cancel(job.pk)
    if before is State.ACTIVE:
        return "Cancelled: its worker is told with the next beat, and its answer is refused."
    return "Cancelled."


def _activate(request: HttpRequest, job: Job, values: Mapping[str, Any]) -> str:
    activate.activate(job.pk)
    return "Activated: the job is available."


def _delete(request: HttpRequest, job: Job, values: Mapping[str, Any]) -> str:
    delete.delete(job.pk)
    return "Deleted, with the history of its errors."


def _says_cancel(request: HttpRequest, jobs: Sequence[Job]) -> Sequence[str]:
    running = sum(job.state == State.ACTIVE for job in jobs)
    said = ["A job that is cancelled does not run again; it cannot be brought back."]
    if running:
        said.append(
            "Of a running job the worker is told with its next beat. What the handler has done by "
            "then stays done."
        )
    return said


def _says_delete(request: HttpRequest, jobs: Sequence[Job]) -> Sequence[str]:
    return ("The rows go, with arguments, result and errors, for good. Pruning does this by age.",)


def _in(*states: State) -> Any:
    return lambda job: job.state in states


JOB_ACTIONS = (
    Action(
        name="retry",
        label="Retry",
        done="retried",
        needs=Scope.OPERATOR,
        run=_retry,
        applies=_in(State.DISCARDED),
    ),
    Action(
        name="retry-with",
        label="Retry with changes",
        done="retried",
        needs=Scope.OPERATOR,
        run=_retry_changed,
        form=ChangesForm,
        many=False,
        applies=lambda job: job.state == State.DISCARDED and job.dead_letter,
    ),
    Action(
        name="activate",
        label="Activate",
        done="activated",
        needs=Scope.OPERATOR,
        run=_activate,
        applies=_in(State.PENDING),
    ),
    Action(
        name="cancel",
        label="Cancel",
        done="cancelled",
        needs=Scope.OPERATOR,
        run=_cancel,
        says=_says_cancel,
        destructive=True,
        applies=_in(*_CANCELLABLE),
    ),
    Action(
        name="delete",
        label="Delete",
        done="deleted",
        needs=Scope.ADMIN,
        run=_delete,
        says=_says_delete,
        destructive=True,
        applies=_in(*TERMINAL),
    ),
)

__all__ = ["JOB_ACTIONS", "ChangesForm", "changes", "in_words"]
