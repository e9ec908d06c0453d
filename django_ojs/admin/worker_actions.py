"""What an operator does with workers: quiet, resume, terminate, deregister."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.http import HttpRequest

from django_ojs.admin.actions import Action
from django_ojs.admin.formatting import number
from django_ojs.models.worker import Directive
from django_ojs.operations.workers import registry
from django_ojs.spec.scopes import Scope

_TOLD = {
    Directive.QUIET: "is told to be quiet: it ends what it runs and fetches nothing.",
    Directive.RUNNING: "is told to run again.",
    Directive.TERMINATE: "is told to terminate: it ends what it runs, and then itself.",
}


def _direct(directive: Directive) -> Callable[[HttpRequest, Any, Mapping[str, Any]], str]:
    def run(request: HttpRequest, worker: Any, values: Mapping[str, Any]) -> str:
        registry.direct(worker.pk, directive)
        return f"Worker {worker.pk} {_TOLD[directive]}"

    return run


def _deregister(request: HttpRequest, worker: Any, values: Mapping[str, Any]) -> str:
    returned = registry.deregister(worker.pk)
    return f"Worker {worker.pk} is deregistered; {number(returned)} of its jobs taken back."


def _how_many(request: HttpRequest, objects: Sequence[Any]) -> Sequence[str]:
    held = sum(registry.held([worker.pk for worker in objects]).values())
    return (
        f"{number(held)} job{'s' * (held != 1)} in hand "
        f"{'come' if held != 1 else 'comes'} back, and each has spent an attempt. A job whose "
        "attempts are all spent is discarded.",
        "Only workers whose beats have stopped are deregistered; others are skipped.",
        "Should one be alive after all, its answers are refused.",
    )


def _what_ends(request: HttpRequest, objects: Sequence[Any]) -> Sequence[str]:
    return (
        "The worker fetches nothing more, ends what it runs within its grace period, and exits.",
        "Nothing leads back; whatever started it may start another one.",
        "It hears of it with its next beat.",
    )


ACTIONS = (
    Action(
        name="quiet",
        label="Quiet",
        done="told to be quiet",
        needs=Scope.OPERATOR,
        run=_direct(Directive.QUIET),
        applies=lambda worker: worker.condition == "running",
    ),
    Action(
        name="resume",
        label="Resume",
        done="told to run again",
        needs=Scope.OPERATOR,
        run=_direct(Directive.RUNNING),
        applies=lambda worker: worker.condition == "quiet",
    ),
    Action(
        name="terminate",
        label="Terminate",
        done="told to terminate",
        needs=Scope.OPERATOR,
        run=_direct(Directive.TERMINATE),
        says=_what_ends,
        destructive=True,
        applies=lambda worker: worker.condition in ("running", "quiet"),
    ),
    Action(
        name="deregister",
        label="Deregister",
        done="deregistered",
        needs=Scope.OPERATOR,
        run=_deregister,
        says=_how_many,
        destructive=True,
        applies=lambda worker: worker.condition == registry.STALE,
    ),
)

__all__ = ["ACTIONS"]
