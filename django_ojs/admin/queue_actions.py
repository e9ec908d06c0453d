"""The actions on queues: pause, drain, resume, configure, purge."""

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, ngettext_lazy

from django_ojs.admin import configure_form
from django_ojs.admin.actions import Action, Skipped
from django_ojs.admin.formatting import StrOrPromise, number
from django_ojs.admin.job_list import STATE_WORDS
from django_ojs.admin.values_in_force import values_in_force
from django_ojs.conf import settings
from django_ojs.models import Queue
from django_ojs.operations import queues
from django_ojs.operations.jobs import bulk
from django_ojs.spec.queue_config import Backpressure
from django_ojs.spec.scopes import Scope
from django_ojs.spec.states import State
from django_ojs.storage.figures import counts

#: A running job can be cancelled, but not purged.
_PURGEABLE = [(state.value, STATE_WORDS[state]) for state in State if state is not State.ACTIVE]
_PURGED_BY_DEFAULT = [state.value for state in (State.AVAILABLE, State.SCHEDULED, State.RETRYABLE)]

#: The most jobs that one purge deletes, which takes some seconds; the next purge deletes more.
_PURGE_LIMIT = 10_000


class PurgeForm(forms.Form):
    states = forms.MultipleChoiceField(
        label=gettext_lazy("States"),
        choices=_PURGEABLE,
        initial=_PURGED_BY_DEFAULT,
        widget=forms.CheckboxSelectMultiple,
    )


def _configure(request: HttpRequest, queue: Queue, values: Mapping[str, Any]) -> str:
    changed = configure_form.changed_values(queue, values)
    if not changed:
        return _("Queue %(queue)s is unchanged.") % {"queue": queue.name}
    changes = configure_form.changes(queue, changed)
    queues.configure(queue.name, changes)
    text = _("Queue %(queue)s is configured: %(fields)s changed.")
    return text % {"queue": queue.name, "fields": ", ".join(changed)}


def _pause(request: HttpRequest, queue: Queue, values: Mapping[str, Any]) -> str:
    if queue.paused:
        raise Skipped(_("The queue is already paused."))
    queues.pause(queue.name)
    text = _("Queue %(queue)s is paused: it accepts jobs, and workers fetch none.")
    return text % {"queue": queue.name}


def _drain(request: HttpRequest, queue: Queue, values: Mapping[str, Any]) -> str:
    if queue.draining_at is not None:
        raise Skipped(_("The queue is already draining."))
    queues.drain(queue.name)
    text = _(
        "Queue %(queue)s is draining: within a second it accepts no more jobs, and workers "
        "finish the jobs that are in it."
    )
    return text % {"queue": queue.name}


def _drain_consequences(request: HttpRequest, objects: Sequence[Any]) -> Sequence[str]:
    return (
        _("Each enqueue to the queue fails, until the queue is resumed."),
        _("Workers finish the jobs that are in it, with all their attempts."),
        _("Steps of workflows and jobs of the outbox wait until the queue is resumed."),
    )


def _resume(request: HttpRequest, queue: Queue, values: Mapping[str, Any]) -> str:
    if not queue.paused and queue.draining_at is None:
        raise Skipped(_("The queue is neither paused nor draining."))
    queues.resume(queue.name)
    text = _("Queue %(queue)s is resumed: it accepts jobs, and workers fetch them.")
    return text % {"queue": queue.name}


def _purge(request: HttpRequest, queue: Queue, values: Mapping[str, Any]) -> str:
    done = bulk.purge(queue.name, [State(state) for state in values["states"]], limit=_PURGE_LIMIT)
    if done.failed and done.has_more:
        text = ngettext(
            "%(number)s job of %(queue)s (%(states)s) deleted, %(failed)s not deleted: %(error)s; "
            "there are more, purge the queue again.",
            "%(number)s jobs of %(queue)s (%(states)s) deleted, %(failed)s not deleted: %(error)s; "
            "there are more, purge the queue again.",
            done.succeeded,
        )
    elif done.failed:
        text = ngettext(
            "%(number)s job of %(queue)s (%(states)s) deleted, %(failed)s not deleted: %(error)s.",
            "%(number)s jobs of %(queue)s (%(states)s) deleted, %(failed)s not deleted: %(error)s.",
            done.succeeded,
        )
    elif done.has_more:
        text = ngettext(
            "%(number)s job of %(queue)s (%(states)s) deleted; there are more, purge the queue "
            "again.",
            "%(number)s jobs of %(queue)s (%(states)s) deleted; there are more, purge the queue "
            "again.",
            done.succeeded,
        )
    else:
        text = ngettext(
            "%(number)s job of %(queue)s (%(states)s) deleted.",
            "%(number)s jobs of %(queue)s (%(states)s) deleted.",
            done.succeeded,
        )
    return text % {
        "number": number(done.succeeded),
        "queue": queue.name,
        "states": ", ".join(values["states"]),
        "failed": number(done.failed),
        "error": done.errors[0].error.removesuffix(".") if done.failed else "",
    }


def _purge_consequences(request: HttpRequest, objects: Sequence[Any]) -> Sequence[str]:
    found = [
        f"{number(count)} {STATE_WORDS[State(state)]}"
        for queue in objects
        for state, count in counts.by_queue([queue.pk]).get(queue.pk, {}).items()
    ]
    return (
        _("Jobs of the queue now: %(counts)s.") % {"counts": ", ".join(found)}
        if found
        else _("The queue is empty now."),
        _("Jobs in the states below are deleted permanently, with their error history."),
        _("Running jobs continue. The queue, its configuration and its charts stay."),
        _("At most %(limit)s jobs are deleted at once; a message reports the rest.")
        % {"limit": number(_PURGE_LIMIT)},
    )


def _configure_consequences(request: HttpRequest, objects: Sequence[Any]) -> Sequence[str]:
    """Return how many jobs wait, and the bounds in force, including those of the default policy."""
    sentences = []
    for queue in objects:
        status = queues.get(queue.pk)
        bound = status.config.backpressure
        waiting = ngettext(
            "%(number)s job waits in the queue now.",
            "%(number)s jobs wait in the queue now.",
            status.depth,
        )
        sentences += [waiting % {"number": number(status.depth)}, _bound_sentence(bound)]
    return (*sentences, _("An empty field falls back to the settings or the default policy."))


def _bound_sentence(bound: Backpressure) -> str:
    jobs = size = ""
    if bound.max_depth is not None:
        text = ngettext("%(number)s job", "%(number)s jobs", bound.max_depth)
        jobs = text % {"number": number(bound.max_depth)}
    if bound.max_size_bytes is not None:
        text = ngettext("%(number)s byte", "%(number)s bytes", bound.max_size_bytes)
        size = text % {"number": number(bound.max_size_bytes)}
    if not (jobs or size):
        return _("In force: no bound.")
    limits = jobs or size
    if jobs and size:
        limits = _("%(jobs)s and %(size)s") % {"jobs": jobs, "size": size}
    return _("In force: at most %(limits)s, then %(strategy)s; a warning at %(threshold)s %%.") % {
        "limits": limits,
        "strategy": bound.strategy,
        "threshold": number(bound.warning_threshold * 100),
    }


_LABELS = configure_form.labels()
#: For these members, 0 means that there is no bound.
_BOUNDS = ("backpressure.max_depth", "backpressure.max_size_bytes")


def _in_force(objects: Sequence[Any]) -> Sequence[tuple[StrOrPromise, ...]]:
    """Return each value of a queue's configuration, where it comes from, and what it overrides."""
    return [
        (
            _LABELS.get(each.name, each.name),
            _in_words(each.name, each.value),
            each.source,
            "; ".join(f"{_in_words(each.name, value)} ({name})" for name, value in each.hidden),
        )
        for queue in objects
        for each in values_in_force(queue)
    ]


def _initial(queue: Any) -> Mapping[str, Any]:
    """Return the values of the form, and those that apply where a field is empty."""
    fallback: dict[str, str] = {}
    for each in values_in_force(queue):
        values = [value for _source, value in each.hidden] if each.is_own else [each.value]
        if values:
            fallback[each.name] = _in_words(each.name, values[0])
    return {**configure_form.own_values(queue), configure_form.IN_FORCE: fallback}


def _in_words(name: str, value: Any) -> str:
    if name in _BOUNDS and not value:
        return _("no bound")
    if name == "max_envelope_bytes" and not value:
        return _("%(size)s, the limit of the server") % {
            "size": number(settings().limits.envelope_bytes)
        }
    if name == "backpressure.warning_threshold":
        return f"{number(value * 100)} %"
    if isinstance(value, int) and not isinstance(value, bool):
        return number(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


ACTIONS = (
    Action.pause(_pause, applies_to=lambda queue: not queue.paused),
    Action.resume(_resume, applies_to=lambda queue: bool(queue.paused or queue.draining_at)),
    Action(
        name="drain",
        label=gettext_lazy("Drain"),
        done=ngettext_lazy("%(count)d draining", "%(count)d draining", "count"),
        scope=Scope.OPERATOR,
        run=_drain,
        consequences=_drain_consequences,
        applies_to=lambda queue: queue.draining_at is None,
    ),
    Action(
        name="configure",
        label=gettext_lazy("Configure"),
        done=ngettext_lazy("%(count)d configured", "%(count)d configured", "count"),
        scope=Scope.ADMIN,
        run=_configure,
        consequences=_configure_consequences,
        in_force=_in_force,
        form=configure_form.ConfigureForm,
        initial=_initial,
        multiple=False,
    ),
    Action(
        name="purge",
        label=gettext_lazy("Purge"),
        done=ngettext_lazy("%(count)d purged", "%(count)d purged", "count"),
        scope=Scope.ADMIN,
        run=_purge,
        consequences=_purge_consequences,
        form=PurgeForm,
        confirm_name=True,
        destructive=True,
        multiple=False,
    ),
)
