"""What an operator does with queues: pause, resume, configure, purge."""

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.http import HttpRequest

from django_ojs.admin.actions import Action, Skipped
from django_ojs.admin.formatting import number
from django_ojs.conf import settings
from django_ojs.models import Queue
from django_ojs.operations import queues
from django_ojs.operations.figures import stats
from django_ojs.operations.jobs import bulk
from django_ojs.spec.queue_config import STRATEGIES
from django_ojs.spec.scopes import Scope
from django_ojs.spec.states import State

_STRATEGIES = {
    "reject": "reject: enqueues fail",
    "block": "block: enqueues wait for room, and then fail",
    "drop_oldest": "drop_oldest: the oldest jobs make room",
}

#: What may be purged. A running job is cancelled, not purged.
_PURGED = [(state.value, state.value) for state in State if state is not State.ACTIVE]
_BY_DEFAULT = [state.value for state in (State.AVAILABLE, State.SCHEDULED, State.RETRYABLE)]

#: Jobs of one purge: some seconds of work. What is left is purged with the next one.
_MOST = 10_000


class ConfigureForm(forms.Form):
    """The bounds of a queue. Empty: what the settings or the default policy say."""

    max_depth = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=2**53,
        label="Most jobs",
        help_text="Jobs that may wait: available, scheduled and retryable. 0: no bound.",
    )
    max_size_bytes = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=2**53,
        label="Most bytes",
        help_text="Bytes that waiting jobs may take, as compact JSON. 0: no bound.",
    )
    strategy = forms.ChoiceField(
        required=False,
        choices=[("", "as by default"), *((name, _STRATEGIES[name]) for name in STRATEGIES)],
        label="When full",
    )
    warning_threshold = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=100,
        label="Warn at, in %",
        help_text="Of the bound. From here on the queue is amber, and events tell of it.",
    )
    max_envelope_bytes = forms.IntegerField(
        required=False,
        min_value=0,
        label="Largest job, in bytes",
        help_text="Of its envelope. 0: the limit of the server.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for each in self.fields.values():
            each.widget.attrs["placeholder"] = "as by default"
        field = self.fields["max_envelope_bytes"]
        most = settings().limits.envelope_bytes
        field.help_text = f"Of its envelope; at most {number(most)}. 0: the limit of the server."


class PurgeForm(forms.Form):
    """Which jobs go."""

    states = forms.MultipleChoiceField(
        choices=_PURGED, initial=_BY_DEFAULT, widget=forms.CheckboxSelectMultiple
    )


def _own(queue: Queue) -> Mapping[str, Any]:
    own = queue.config.get("backpressure") or {}
    threshold = own.get("warning_threshold")
    return {
        "max_depth": own.get("max_depth"),
        "max_size_bytes": own.get("max_size_bytes"),
        "strategy": own.get("strategy") or "",
        "warning_threshold": None if threshold is None else round(threshold * 100),
        "max_envelope_bytes": queue.config.get("max_envelope_bytes"),
    }


def _configure(request: HttpRequest, queue: Queue, values: Mapping[str, Any]) -> str:
    bounds: dict[str, Any] = dict(queue.config.get("backpressure") or {})
    threshold = values["warning_threshold"]
    asked = {
        "max_depth": values["max_depth"],
        "max_size_bytes": values["max_size_bytes"],
        "strategy": values["strategy"] or None,
        "warning_threshold": None if threshold is None else threshold / 100,
    }
    bounds = {name: each for name, each in {**bounds, **asked}.items() if each is not None}
    queues.configure(
        queue.name,
        {"backpressure": bounds or None, "max_envelope_bytes": values["max_envelope_bytes"]},
    )
    before = _own(queue)
    changed = [name for name, each in before.items() if each != values[name]]
    if not changed:
        return f"Queue {queue.name} is configured as it was."
    return f"Queue {queue.name} is configured: {', '.join(changed)} changed."


def _pause(request: HttpRequest, queue: Queue, values: Mapping[str, Any]) -> str:
    if queue.paused:
        raise Skipped("It is paused already.")
    queues.pause(queue.name, by=_who(request))
    return f"Queue {queue.name} is paused: it takes jobs and hands out none."


def _resume(request: HttpRequest, queue: Queue, values: Mapping[str, Any]) -> str:
    if not queue.paused:
        raise Skipped("It is not paused.")
    queues.resume(queue.name, by=_who(request))
    return f"Queue {queue.name} hands out jobs again."


def _purge(request: HttpRequest, queue: Queue, values: Mapping[str, Any]) -> str:
    done = bulk.purge(queue.name, [State(state) for state in values["states"]], limit=_MOST)
    text = f"{number(done.succeeded)} jobs of {queue.name} ({', '.join(values['states'])}) deleted"
    if done.failed:
        text += f", {number(done.failed)} left: {done.errors[0].error}"
    if done.has_more:
        text += "; there are more, purge it again"
    return text.removesuffix(".") + "."


def _what_goes(request: HttpRequest, objects: Sequence[Any]) -> Sequence[str]:
    there = [
        f"{number(count)} {state}"
        for queue in objects
        for state, count in stats.by_queue([queue.pk]).get(queue.pk, {}).items()
    ]
    return (
        f"In it at this moment: {', '.join(there)}." if there else "It is empty at this moment.",
        "The jobs in the states below are deleted for good, with the history of their errors.",
        "Running jobs go on. The queue, its configuration and its charts stay.",
        f"At most {number(_MOST)} jobs go at once; the answer says whether more are left.",
    )


def _in_force(request: HttpRequest, objects: Sequence[Any]) -> Sequence[str]:
    """Say what holds at this moment, the default's values included, and what waits."""
    said = []
    for queue in objects:
        status = queues.get(queue.pk)
        bound = status.config.backpressure
        most = [
            f"{number(each)} {unit}"
            for each, unit in ((bound.max_depth, "jobs"), (bound.max_size_bytes, "bytes"))
            if each is not None
        ]
        holds = "no bound"
        if most:
            warns = number(bound.warning_threshold * 100)
            holds = f"at most {' and '.join(most)}, then {bound.strategy}; a warning at {warns} %"
        said += [
            f"{number(status.depth)} job{'s' * (status.depth != 1)} wait"
            f"{'s' * (status.depth == 1)} in it at this moment.",
            f"In force: {holds}.",
        ]
    return (*said, "What is left empty is as the settings or the default policy say.")


def _who(request: HttpRequest) -> str:
    return str(request.user.get_username())


ACTIONS = (
    Action(
        name="pause",
        label="Pause",
        done="paused",
        needs=Scope.OPERATOR,
        run=_pause,
        applies=lambda queue: not queue.paused,
    ),
    Action(
        name="resume",
        label="Resume",
        done="resumed",
        needs=Scope.OPERATOR,
        run=_resume,
        applies=lambda queue: bool(queue.paused),
    ),
    Action(
        name="configure",
        label="Configure",
        done="configured",
        needs=Scope.ADMIN,
        run=_configure,
        says=_in_force,
        form=ConfigureForm,
        initial=_own,
        many=False,
    ),
    Action(
        name="purge",
        label="Purge",
        done="purged",
        needs=Scope.ADMIN,
        run=_purge,
        says=_what_goes,
        form=PurgeForm,
        typed=True,
        destructive=True,
        many=False,
    ),
)

__all__ = ["ACTIONS", "ConfigureForm", "PurgeForm"]
