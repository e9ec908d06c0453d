"""The actions on jobs; the state of a job decides which apply."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django import forms
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, ngettext_lazy

from django_ojs.admin.actions import Action, Skipped
from django_ojs.admin.form_fields import PriorityField, QueueNameField
from django_ojs.models import Job
from django_ojs.operations import activate, cancel, delete, retry, run_again, run_now
from django_ojs.operations.enqueue.result import Outcome
from django_ojs.operations.jobs import dead_letters, execution_history
from django_ojs.spec.scopes import Scope
from django_ojs.spec.states import TERMINAL, State, Trigger, sources

_CANCELLABLE = sources(Trigger.CANCEL, State.CANCELLED)


class ChangesForm(forms.Form):
    """What a retry of a dead letter changes (ojs-dead-letter §6.3); empty fields change nothing."""

    queue = QueueNameField()
    priority = PriorityField()
    max_attempts = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=1000,
        label=gettext_lazy("Maximum attempts"),
        help_text=gettext_lazy("Attempts are counted from 1 again."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            field.widget.attrs.setdefault("placeholder", _("unchanged"))


def overrides(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a ChangesForm as `dead_letters.retry` takes them."""
    changed: dict[str, Any] = {}
    if values.get("queue"):
        changed["queue"] = values["queue"]
    if values.get("priority") is not None:
        changed["priority"] = values["priority"]
    if values.get("max_attempts") is not None:
        changed["retry"] = {"max_attempts": values["max_attempts"]}
    return changed


def describe(changed: Mapping[str, Any]) -> str:
    """Return the overrides of a retry in words: "queue b, 5 attempts"."""
    words = []
    if "queue" in changed:
        words.append(_("queue %(queue)s") % {"queue": changed["queue"]})
    if "priority" in changed:
        words.append(_("priority %(priority)s") % {"priority": changed["priority"]})
    if "retry" in changed:
        number = changed["retry"]["max_attempts"]
        text = ngettext("%(count)d attempt", "%(count)d attempts", number)
        words.append(text % {"count": number})
    return ", ".join(words)


def _retry(request: HttpRequest, job: Job, values: Mapping[str, Any]) -> str:
    retry.retry(job.pk)
    return _("Retried: the job is available again, with all its attempts.")


def _retry_changed(request: HttpRequest, job: Job, values: Mapping[str, Any]) -> str:
    changed = overrides(values)
    dead_letters.retry(job.pk, override=changed or None)
    if not changed:
        return _("Retried: the job is available again, with all its attempts.")
    text = _("Retried with %(changes)s: the job is available again, with all its attempts.")
    return text % {"changes": describe(changed)}


def _cancel(request: HttpRequest, job: Job, values: Mapping[str, Any]) -> str:
    before = cancel.cancel(job.pk)[1]
    if before is State.CANCELLED:  # Another user was faster, and the audit trail names that user.
        raise Skipped(_("The job is already cancelled."))
    if before is State.ACTIVE:
        return _(
            "Cancelled: its worker learns of it at the next heartbeat, and its result is rejected."
        )
    return _("Cancelled.")


def _run_now(request: HttpRequest, job: Job, values: Mapping[str, Any]) -> str:
    run_now.run_now(job.pk)
    return _("The job is available.")


def _run_again(request: HttpRequest, job: Job, values: Mapping[str, Any]) -> str:
    copy = run_again.run_again(job.pk)
    match copy.outcome:
        case Outcome.DUPLICATE:
            raise Skipped(
                _("Not enqueued: by its unique policy, the copy is a duplicate of %(id)s.")
                % {"id": copy.id}
            )
        case Outcome.DROPPED:
            raise Skipped(_("An enqueue middleware dropped the copy."))
        case _:
            return _("Enqueued a copy: %(id)s.") % {"id": copy.id}


def _activate(request: HttpRequest, job: Job, values: Mapping[str, Any]) -> str:
    activate.activate(job.pk)
    return _("Activated: the job is available.")


def _delete(request: HttpRequest, job: Job, values: Mapping[str, Any]) -> str:
    delete.delete(job.pk)
    return _("Deleted, with its error history.")


def _delete_history(request: HttpRequest, job: Job, values: Mapping[str, Any]) -> str:
    number = execution_history.delete(job.pk)
    text = ngettext(
        "Deleted %(number)d event of the history.",
        "Deleted %(number)d events of the history.",
        number,
    )
    return text % {"number": number}


def _delete_history_consequences(request: HttpRequest, jobs: Sequence[Job]) -> Sequence[str]:
    return (
        _("The attempts of the job are deleted permanently, with their errors."),
        _("The job stays, with its arguments, its result and its last error."),
    )


def _cancel_consequences(request: HttpRequest, jobs: Sequence[Job]) -> Sequence[str]:
    running = sum(job.state == State.ACTIVE for job in jobs)
    sentences = [_("A cancelled job does not run again and cannot be restored.")]
    if running:
        sentences.append(
            _(
                "The worker of a running job learns of it at its next heartbeat. "
                "What the handler has done by then is not undone."
            )
        )
    return sentences


def _cancel_choices(jobs: Sequence[Job]) -> tuple[str, str]:
    running = any(job.state == State.ACTIVE for job in jobs)
    if len(jobs) == 1:
        return _("Cancel this job"), _("Keep it running") if running else _("Keep it")
    return _("Cancel these jobs"), _("Keep them running") if running else _("Keep them")


def _run_again_consequences(request: HttpRequest, jobs: Sequence[Job]) -> Sequence[str]:
    return (
        _("A copy with the same arguments is enqueued, and this job stays as it is.")
        if len(jobs) == 1
        else _("Copies with the same arguments are enqueued, and these jobs stay as they are."),
        _("The handler repeats what it did the first time."),
    )


def _delete_consequences(request: HttpRequest, jobs: Sequence[Job]) -> Sequence[str]:
    return (_("The rows are deleted permanently, with arguments, result and errors."),)


def _in(*states: State) -> Callable[[Job], bool]:
    return lambda job: job.state in states


JOB_ACTIONS = (
    Action(
        name="retry",
        label=gettext_lazy("Retry"),
        done=ngettext_lazy("%(count)d retried", "%(count)d retried", "count"),
        scope=Scope.OPERATOR,
        run=_retry,
        applies_to=_in(State.DISCARDED),
    ),
    Action(
        name="retry-with",
        label=gettext_lazy("Retry with changes"),
        done=ngettext_lazy("%(count)d retried", "%(count)d retried", "count"),
        scope=Scope.OPERATOR,
        run=_retry_changed,
        form=ChangesForm,
        multiple=False,
        applies_to=lambda job: job.state == State.DISCARDED and job.dead_letter,
    ),
    Action(
        name="run-now",
        label=gettext_lazy("Run now"),
        done=ngettext_lazy("%(count)d made available", "%(count)d made available", "count"),
        scope=Scope.OPERATOR,
        run=_run_now,
        applies_to=_in(*sources(Trigger.TIMER, State.AVAILABLE)),
    ),
    Action(
        name="run-again",
        label=gettext_lazy("Run again"),
        done=ngettext_lazy("%(count)d enqueued again", "%(count)d enqueued again", "count"),
        scope=Scope.OPERATOR,
        run=_run_again,
        consequences=_run_again_consequences,
        applies_to=_in(*TERMINAL),
    ),
    Action(
        name="activate",
        label=gettext_lazy("Activate"),
        done=ngettext_lazy("%(count)d activated", "%(count)d activated", "count"),
        scope=Scope.OPERATOR,
        run=_activate,
        applies_to=_in(State.PENDING),
    ),
    Action(
        name="cancel",
        label=gettext_lazy("Cancel"),
        done=ngettext_lazy("%(count)d cancelled", "%(count)d cancelled", "count"),
        scope=Scope.OPERATOR,
        run=_cancel,
        consequences=_cancel_consequences,
        choices=_cancel_choices,
        destructive=True,
        applies_to=_in(*_CANCELLABLE),
    ),
    Action(
        name="delete-history",
        label=gettext_lazy("Delete history"),
        done=ngettext_lazy("%(count)d deleted", "%(count)d deleted", "count"),
        scope=Scope.ADMIN,
        run=_delete_history,
        consequences=_delete_history_consequences,
        multiple=False,
        destructive=True,
        applies_to=lambda job: job.run > 0,
    ),
    Action(
        name="delete",
        label=gettext_lazy("Delete"),
        done=ngettext_lazy("%(count)d deleted", "%(count)d deleted", "count"),
        scope=Scope.ADMIN,
        run=_delete,
        consequences=_delete_consequences,
        destructive=True,
        applies_to=_in(*TERMINAL),
    ),
)
