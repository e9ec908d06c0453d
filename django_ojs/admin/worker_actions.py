"""The actions on workers: quiet, resume, terminate, deregister."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.http import HttpRequest

from django_ojs.admin.actions import Action
from django_ojs.formatting import number
from django_ojs.models.worker import Directive
from django_ojs.operations.workers import registry
from django_ojs.spec.scopes import Scope

_DIRECTED = {
    Directive.QUIET: "will be quiet: it finishes its jobs and fetches no more.",
    Directive.RUNNING: "will run again.",
    Directive.TERMINATE: "will terminate: it finishes its jobs and exits.",
}


def _direct(directive: Directive) -> Callable[[HttpRequest, Any, Mapping[str, Any]], str]:
    def run(request: HttpRequest, worker: Any, values: Mapping[str, Any]) -> str:
        registry.direct(worker.pk, directive)
        return f"Worker {worker.pk} {_DIRECTED[directive]}"

    return run


def _deregister(request: HttpRequest, worker: Any, values: Mapping[str, Any]) -> str:
    returned = registry.deregister(worker.pk)
    return f"Worker {worker.pk} is deregistered; {number(returned)} of its jobs were recovered."


def _deregister_consequences(request: HttpRequest, objects: Sequence[Any]) -> Sequence[str]:
    held = sum(registry.held([worker.pk for worker in objects]).values())
    return (
        f"{number(held)} job{'s' * (held != 1)} in flight {'are' if held != 1 else 'is'} "
        "recovered; this uses an attempt of each. A job without attempts left is discarded.",
        "Only stale workers are deregistered; others are skipped.",
        "If a worker is alive after all, its results are rejected.",
    )


def _terminate_consequences(request: HttpRequest, objects: Sequence[Any]) -> Sequence[str]:
    return (
        "The worker fetches no more jobs, finishes its jobs within its grace period, and exits.",
        "This cannot be undone. A process manager may start a new worker.",
        "The worker learns of it at its next heartbeat.",
    )


ACTIONS = (
    Action(
        name="quiet",
        label="Quiet",
        done="directed to be quiet",
        scope=Scope.OPERATOR,
        run=_direct(Directive.QUIET),
        applies_to=lambda worker: worker.condition == "running",
    ),
    Action(
        name="resume",
        label="Resume",
        done="directed to run again",
        scope=Scope.OPERATOR,
        run=_direct(Directive.RUNNING),
        applies_to=lambda worker: worker.condition == "quiet",
    ),
    Action(
        name="terminate",
        label="Terminate",
        done="directed to terminate",
        scope=Scope.OPERATOR,
        run=_direct(Directive.TERMINATE),
        consequences=_terminate_consequences,
        destructive=True,
        applies_to=lambda worker: worker.condition in ("running", "quiet"),
    ),
    Action(
        name="deregister",
        label="Deregister",
        done="deregistered",
        scope=Scope.OPERATOR,
        run=_deregister,
        consequences=_deregister_consequences,
        destructive=True,
        applies_to=lambda worker: worker.condition == registry.STALE,
    ),
)
