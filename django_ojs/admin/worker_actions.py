"""The actions on workers: quiet, resume, terminate, deregister."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django import forms
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, ngettext_lazy

from django_ojs.admin.actions import Action
from django_ojs.admin.formatting import number
from django_ojs.models.worker import Directive
from django_ojs.operations.workers import registry
from django_ojs.spec.scopes import Scope

_DIRECTED = {
    Directive.QUIET: gettext_lazy(
        "Worker %(worker)s will be quiet: it finishes its jobs and fetches no more."
    ),
    Directive.RUNNING: gettext_lazy("Worker %(worker)s will run again."),
    Directive.TERMINATE: gettext_lazy(
        "Worker %(worker)s will terminate: it finishes its jobs and exits."
    ),
}


def _direct(directive: Directive) -> Callable[[HttpRequest, Any, Mapping[str, Any]], str]:
    def run(request: HttpRequest, worker: Any, values: Mapping[str, Any]) -> str:
        registry.direct(worker.pk, directive)
        return str(_DIRECTED[directive] % {"worker": worker.pk})

    return run


class SlotsForm(forms.Form):
    """The form for the number of jobs that a worker runs at a time."""

    slots = forms.IntegerField(
        min_value=1,
        label=gettext_lazy("Slots"),
        help_text=gettext_lazy(
            "How many jobs run at a time, until the process is replaced. Running jobs go on."
        ),
    )


def _resize(request: HttpRequest, worker: Any, values: Mapping[str, Any]) -> str:
    registry.resize(worker.pk, values["slots"])
    text = _("Worker %(worker)s will have %(number)s slots.")
    return text % {"worker": worker.pk, "number": number(values["slots"])}


def _resize_consequences(request: HttpRequest, objects: Sequence[Any]) -> Sequence[str]:
    return [
        _("%(worker)s was started with %(least)s to %(most)s slots.")
        % {"worker": each.pk, "least": number(each.least_slots), "most": number(each.most_slots)}
        for each in objects
        if each.most_slots
    ]


def _deregister(request: HttpRequest, worker: Any, values: Mapping[str, Any]) -> str:
    returned = registry.deregister(worker.pk)
    text = ngettext(
        "Worker %(worker)s is deregistered; %(number)s job was recovered.",
        "Worker %(worker)s is deregistered; %(number)s jobs were recovered.",
        returned,
    )
    return text % {"worker": worker.pk, "number": number(returned)}


def _deregister_consequences(request: HttpRequest, objects: Sequence[Any]) -> Sequence[str]:
    held = sum(registry.held([worker.pk for worker in objects]).values())
    return (
        ngettext(
            "%(number)s job in flight is recovered. This uses one of its attempts; with none left "
            "it is discarded.",
            "%(number)s jobs in flight are recovered. This uses one attempt of each; a job with "
            "none left is discarded.",
            held,
        )
        % {"number": number(held)},
        _("Only stale workers are deregistered; others are skipped."),
        _("If a worker is alive after all, its results are rejected."),
    )


def _terminate_consequences(request: HttpRequest, objects: Sequence[Any]) -> Sequence[str]:
    return (
        _("The worker fetches no more jobs, finishes its jobs within its grace period, and exits."),
        _("This cannot be undone. A process manager may start a new worker."),
        _("The worker learns of it at its next heartbeat."),
    )


ACTIONS = (
    Action(
        name="quiet",
        label=gettext_lazy("Quiet"),
        done=ngettext_lazy(
            "%(count)d directed to be quiet", "%(count)d directed to be quiet", "count"
        ),
        scope=Scope.OPERATOR,
        run=_direct(Directive.QUIET),
        applies_to=lambda worker: worker.condition == "running",
    ),
    Action(
        name="resume",
        label=gettext_lazy("Resume"),
        done=ngettext_lazy(
            "%(count)d directed to run again", "%(count)d directed to run again", "count"
        ),
        scope=Scope.OPERATOR,
        run=_direct(Directive.RUNNING),
        applies_to=lambda worker: worker.condition == "quiet",
    ),
    Action(
        name="slots",
        label=gettext_lazy("Change slots"),
        done=ngettext_lazy("%(count)d changed", "%(count)d changed", "count"),
        scope=Scope.OPERATOR,
        run=_resize,
        consequences=_resize_consequences,
        form=SlotsForm,
        initial=lambda worker: {"slots": worker.wanted_slots or worker.concurrency},
        multiple=False,
        applies_to=lambda worker: (
            worker.condition == "running" and (worker.most_slots or 0) > (worker.least_slots or 0)
        ),
    ),
    Action(
        name="terminate",
        label=gettext_lazy("Terminate"),
        done=ngettext_lazy(
            "%(count)d directed to terminate", "%(count)d directed to terminate", "count"
        ),
        scope=Scope.OPERATOR,
        run=_direct(Directive.TERMINATE),
        consequences=_terminate_consequences,
        destructive=True,
        applies_to=lambda worker: worker.condition in ("running", "quiet"),
    ),
    Action(
        name="deregister",
        label=gettext_lazy("Deregister"),
        done=ngettext_lazy("%(count)d deregistered", "%(count)d deregistered", "count"),
        scope=Scope.OPERATOR,
        run=_deregister,
        consequences=_deregister_consequences,
        destructive=True,
        applies_to=lambda worker: worker.condition == registry.STALE,
    ),
)
