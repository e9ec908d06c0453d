"""The actions on queues: pause, drain, resume, configure, purge."""

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.http import HttpRequest
from django.utils.translation import gettext

from django_ojs.admin.actions import Action, Skipped
from django_ojs.conf import settings
from django_ojs.formatting import number
from django_ojs.models import Queue
from django_ojs.operations import queues
from django_ojs.operations.figures import stats
from django_ojs.operations.jobs import bulk
from django_ojs.spec.queue_config import STRATEGIES
from django_ojs.spec.scopes import Scope
from django_ojs.spec.states import State

_DEFAULT = "default"

_STRATEGIES = {
    "reject": "reject: an enqueue fails",
    "block": "block: an enqueue waits for space, then fails",
    "drop_oldest": "drop_oldest: the oldest jobs are dropped",
}

#: A running job can be cancelled, but not purged.
_PURGEABLE = [(state.value, state.value) for state in State if state is not State.ACTIVE]
_PURGED_BY_DEFAULT = [state.value for state in (State.AVAILABLE, State.SCHEDULED, State.RETRYABLE)]

#: Jobs of one purge: some seconds of work. The next purge deletes the rest.
_PURGE_LIMIT = 10_000


class ConfigureForm(forms.Form):
    """The bounds of a queue; an empty field falls back to the settings or the default policy."""

    max_depth = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=2**53,
        label="Maximum jobs",
        help_text="Waiting jobs: available, scheduled and retryable. 0: no bound.",
    )
    max_size_bytes = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=2**53,
        label="Maximum bytes",
        help_text="Size of the waiting jobs as compact JSON. 0: no bound.",
    )
    strategy = forms.ChoiceField(
        required=False,
        choices=[("", _DEFAULT), *((name, _STRATEGIES[name]) for name in STRATEGIES)],
        label="When full",
    )
    warning_threshold = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=100,
        label="Warning threshold, in %",
        help_text="Of the bound. Above it the queue is amber and an event is published.",
    )
    max_envelope_bytes = forms.IntegerField(
        required=False,
        min_value=0,
        label="Maximum job size, in bytes",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            field.widget.attrs["placeholder"] = _DEFAULT
        limit = number(settings().limits.envelope_bytes)
        self.fields[
            "max_envelope_bytes"
        ].help_text = f"Size of a job's envelope; at most {limit}. 0: the limit of the server."


class PurgeForm(forms.Form):
    states = forms.MultipleChoiceField(
        choices=_PURGEABLE, initial=_PURGED_BY_DEFAULT, widget=forms.CheckboxSelectMultiple
    )


def _own_config(queue: Queue) -> Mapping[str, Any]:
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
    submitted = {
        "max_depth": values["max_depth"],
        "max_size_bytes": values["max_size_bytes"],
        "strategy": values["strategy"] or None,
        "warning_threshold": None if threshold is None else threshold / 100,
    }
    bounds = {name: value for name, value in {**bounds, **submitted}.items() if value is not None}
    queues.configure(
        queue.name,
        {"backpressure": bounds or None, "max_envelope_bytes": values["max_envelope_bytes"]},
    )
    before = _own_config(queue)
    changed = [name for name, value in before.items() if value != values[name]]
    if not changed:
        return f"Queue {queue.name} is unchanged."
    return f"Queue {queue.name} is configured: {', '.join(changed)} changed."


def _pause(request: HttpRequest, queue: Queue, values: Mapping[str, Any]) -> str:
    if queue.paused:
        raise Skipped("The queue is already paused.")
    queues.pause(queue.name, by=request.user.get_username())
    return f"Queue {queue.name} is paused: it accepts jobs, and workers fetch none."


def _drain(request: HttpRequest, queue: Queue, values: Mapping[str, Any]) -> str:
    if queue.draining_at is not None:
        raise Skipped(gettext("The queue is already draining."))
    queues.drain(queue.name, by=request.user.get_username())
    return gettext(
        "Queue %(queue)s is draining: it accepts no jobs, and workers finish those in it."
    ) % {"queue": queue.name}


def _drain_consequences(request: HttpRequest, objects: Sequence[Any]) -> Sequence[str]:
    return (
        gettext("Each enqueue to the queue fails, until the queue is resumed."),
        gettext("Workers finish the jobs that are in it, with all their attempts."),
        gettext("Steps of workflows and jobs of the outbox wait until the queue is resumed."),
    )


def _resume(request: HttpRequest, queue: Queue, values: Mapping[str, Any]) -> str:
    if not queue.paused and queue.draining_at is None:
        raise Skipped(gettext("The queue is neither paused nor draining."))
    queues.resume(queue.name, by=request.user.get_username())
    return gettext("Queue %(queue)s is resumed: it accepts jobs, and workers fetch them.") % {
        "queue": queue.name
    }


def _purge(request: HttpRequest, queue: Queue, values: Mapping[str, Any]) -> str:
    done = bulk.purge(queue.name, [State(state) for state in values["states"]], limit=_PURGE_LIMIT)
    jobs = f"{number(done.succeeded)} job{'s' * (done.succeeded != 1)}"
    text = f"{jobs} of {queue.name} ({', '.join(values['states'])}) deleted"
    if done.failed:
        text += f", {number(done.failed)} not deleted: {done.errors[0].error}"
    if done.has_more:
        text += "; there are more, purge the queue again"
    return text.removesuffix(".") + "."


def _purge_consequences(request: HttpRequest, objects: Sequence[Any]) -> Sequence[str]:
    counts = [
        f"{number(count)} {state}"
        for queue in objects
        for state, count in stats.by_queue([queue.pk]).get(queue.pk, {}).items()
    ]
    return (
        f"Jobs of the queue now: {', '.join(counts)}." if counts else "The queue is empty now.",
        "Jobs in the states below are deleted permanently, with their error history.",
        "Running jobs continue. The queue, its configuration and its charts stay.",
        f"At most {number(_PURGE_LIMIT)} jobs are deleted at once; a message reports the rest.",
    )


def _configure_consequences(request: HttpRequest, objects: Sequence[Any]) -> Sequence[str]:
    """Return what waits now, and the bounds in force, those of the default policy included."""
    sentences = []
    for queue in objects:
        status = queues.get(queue.pk)
        bound = status.config.backpressure
        limits = [
            f"{number(limit)} {unit}"
            for limit, unit in ((bound.max_depth, "jobs"), (bound.max_size_bytes, "bytes"))
            if limit is not None
        ]
        in_force = "no bound"
        if limits:
            threshold = number(bound.warning_threshold * 100)
            in_force = f"at most {' and '.join(limits)}, then {bound.strategy}; "
            in_force += f"a warning at {threshold} %"
        plural = status.depth != 1
        sentences += [
            f"{number(status.depth)} {'jobs wait' if plural else 'job waits'} in the queue now.",
            f"In force: {in_force}.",
        ]
    return (*sentences, "An empty field falls back to the settings or the default policy.")


#: The labels of the form, by the members of the configuration.
_LABELS = {
    "backpressure.max_depth": "Maximum jobs",
    "backpressure.max_size_bytes": "Maximum bytes",
    "backpressure.strategy": "When full",
    "backpressure.warning_threshold": "Warning threshold",
    "max_envelope_bytes": "Maximum job size, in bytes",
}
#: Of these members, 0 is no bound.
_BOUNDS = ("backpressure.max_depth", "backpressure.max_size_bytes")


def _in_force(objects: Sequence[Any]) -> Sequence[tuple[str, ...]]:
    """Return each value of a queue's configuration, where it comes from, and what it hides."""
    return [
        (
            _LABELS.get(each.name, each.name),
            _in_words(each.name, each.value),
            each.source,
            "; ".join(f"{_in_words(each.name, value)} ({name})" for name, value in each.hidden),
        )
        for queue in objects
        for each in queues.values_in_force(queue)
    ]


def _in_words(name: str, value: Any) -> str:
    if name in _BOUNDS and not value:
        return "no bound"
    if name == "max_envelope_bytes" and not value:
        return f"{number(settings().limits.envelope_bytes)}, the limit of the server"
    if name == "backpressure.warning_threshold":
        return f"{number(value * 100)} %"
    if isinstance(value, int) and not isinstance(value, bool):
        return number(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


ACTIONS = (
    Action(
        name="pause",
        label="Pause",
        done="paused",
        scope=Scope.OPERATOR,
        run=_pause,
        applies_to=lambda queue: not queue.paused,
    ),
    Action(
        name="resume",
        label="Resume",
        done="resumed",
        scope=Scope.OPERATOR,
        run=_resume,
        applies_to=lambda queue: bool(queue.paused or queue.draining_at),
    ),
    Action(
        name="drain",
        label="Drain",
        done="draining",
        scope=Scope.OPERATOR,
        run=_drain,
        consequences=_drain_consequences,
        applies_to=lambda queue: queue.draining_at is None,
    ),
    Action(
        name="configure",
        label="Configure",
        done="configured",
        scope=Scope.ADMIN,
        run=_configure,
        consequences=_configure_consequences,
        in_force=_in_force,
        form=ConfigureForm,
        initial=_own_config,
        multiple=False,
    ),
    Action(
        name="purge",
        label="Purge",
        done="purged",
        scope=Scope.ADMIN,
        run=_purge,
        consequences=_purge_consequences,
        form=PurgeForm,
        confirm_name=True,
        destructive=True,
        multiple=False,
    ),
)
