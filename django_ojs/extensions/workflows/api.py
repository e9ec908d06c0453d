"""Workflows: jobs that run in an order, made of `handler.s(...)` and of each other.

ojs.chain(
    charge.s(order.pk),
    ojs.group(print_label.s(order.pk), print_invoice.s(order.pk)),
    ship.s(order.pk),
).enqueue()
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from uuid import UUID

from asgiref.sync import sync_to_async

from django_ojs.async_twins import has_twin
from django_ojs.conf import settings
from django_ojs.context import current_context
from django_ojs.enqueue_options import Request, envelope_of
from django_ojs.extensions.workflows import operations
from django_ojs.extensions.workflows.models import Workflow, WorkflowState
from django_ojs.extensions.workflows.spec import CALLBACKS, CallbackName, Graph, WorkflowType
from django_ojs.extensions.workflows.spec.definition import located
from django_ojs.extensions.workflows.spec.parse import parse
from django_ojs.handler_registry import registry
from django_ojs.handlers import Handler
from django_ojs.spec import ids
from django_ojs.spec.envelope.wire import template
from django_ojs.spec.errors import InvalidRequest, OJSError
from django_ojs.spec.suggestions import nearest

_STEP_PATH = re.compile(r"steps\[(\d+)\](?:\.depends_on\[(\d+)\])?").match

#: What a workflow is made of: jobs, and other workflows.
Part: TypeAlias = "Request | WorkflowRequest"


@dataclass(frozen=True, kw_only=True, slots=True)
class EnqueuedWorkflow:
    """The result of enqueueing a workflow."""

    id: UUID
    type: WorkflowType
    name: str | None
    state: WorkflowState

    @has_twin
    def workflow(self) -> Workflow:
        """Query the workflow as it is now. Raises WorkflowNotFound."""
        return get_workflow(self.id)

    async def aworkflow(self) -> Workflow:
        """Query the workflow as it is now; see `workflow`."""
        return await sync_to_async(self.workflow)()


class WorkflowRequest:
    """A description of a workflow, which `enqueue` stores; it may also be a part of another."""

    def graph(self) -> Graph:
        """Return the steps, checked. Raises an OJSError that names the path, as `enqueue` does."""
        return parse(self.definition(), limits=settings().limits)

    @has_twin
    def enqueue(self) -> EnqueuedWorkflow:
        """Store the workflow, in the transaction that is open on the jobs' database.

        Its first jobs are enqueued in the same transaction; each other job when the jobs that it
        waits for have ended. Raises an OJSError that names the path and the rule, such as
        "steps[1].jobs[0].priority must be an integer", and as `handler.enqueue` does.
        """
        graph = self.graph()
        stored = operations.create(graph)
        return EnqueuedWorkflow(
            id=stored.pk,
            type=graph.type,
            name=graph.name,
            state=WorkflowState(stored.state),
        )

    async def aenqueue(self) -> EnqueuedWorkflow:
        """Store the workflow; see `enqueue`."""
        return await sync_to_async(self.enqueue)()

    def definition(self, path: str = "") -> dict[str, Any]:
        """Return the workflow as a client would send it; `path` is its place in an outer one."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class _Sequence(WorkflowRequest):
    """A chain or a group."""

    type: Literal["chain", "group"]
    parts: tuple[Part, ...]
    name: str | None

    def definition(self, path: str = "") -> dict[str, Any]:
        attribute = "steps" if self.type == "chain" else "jobs"
        return {
            "type": self.type,
            **_named(self.name),
            attribute: _definitions(self.parts, _at(path, attribute)),
        }


@dataclass(frozen=True, slots=True)
class _Batch(WorkflowRequest):
    jobs: tuple[Part, ...]
    callbacks: Mapping[CallbackName, Request | None]
    name: str | None

    def definition(self, path: str = "") -> dict[str, Any]:
        place = _at(path, "callbacks")
        return {
            "type": "batch",
            **_named(self.name),
            "jobs": _definitions(self.jobs, _at(path, "jobs")),
            "callbacks": {
                name: _definition(job, f"{place}.{name}")
                for name, job in self.callbacks.items()
                if job is not None
            },
        }


@dataclass(frozen=True, slots=True)
class NamedStep:
    """A part of a `graph`, with its name and the names of the steps that it waits for."""

    name: str
    part: Part
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Graph(WorkflowRequest):
    steps: tuple[NamedStep, ...]
    name: str | None = field(default=None)

    def graph(self) -> Graph:
        try:
            # super() does not work here, because dataclass makes a new class for the slots.
            return WorkflowRequest.graph(self)
        except OJSError as error:
            # The message has the path in the definition, as over HTTP; the hint has the names.
            if error.hint is None:
                error.hint = self._in_names(str(error.details.get("field", "")))
            raise

    def _in_names(self, path: str) -> str | None:
        found = _STEP_PATH(path)
        if found is None:
            return None
        number, other = found.groups()
        step = self.steps[int(number)]
        text = f"steps[{number}] is step({step.name!r})"
        if other is None:
            return f"{text}."
        wanted = step.after[int(other)]
        text += f", which waits for {wanted!r}."
        names = [each.name for each in self.steps]
        others = [name for name in names if name != step.name]
        meant = None if wanted in names else nearest(wanted, others)
        return text if meant is None else f"{text} Did you mean {meant!r}?"

    def definition(self, path: str = "") -> dict[str, Any]:
        if path:
            raise InvalidRequest.of(path, "must not be a graph: it cannot be part of a workflow")
        return {
            **_named(self.name),
            "steps": [
                {
                    **_definition(step.part, f"steps[{index}]"),
                    "id": step.name,
                    "depends_on": list(step.after),
                }
                for index, step in enumerate(self.steps)
            ],
        }


def chain(*steps: Part, name: str | None = None) -> WorkflowRequest:
    """Run steps one after the other: each starts when the one before it has succeeded.

    `ctx.parent_results` of a step has the results of all steps before it, in order. When a step
    fails, after its retries, the workflow fails and the steps after it never start.
    """
    return _Sequence("chain", _checked(steps, "chain"), name)


def group(*jobs: Part, name: str | None = None) -> WorkflowRequest:
    """Run jobs side by side: `ojs.group(*[resize.s(size) for size in SIZES])`.

    The group has succeeded when all its jobs have; a job that fails stops none of the others.
    """
    return _Sequence("group", _checked(jobs, "group"), name)


def batch(
    *jobs: Part,
    on_complete: Request | None = None,
    on_success: Request | None = None,
    on_failure: Request | None = None,
    name: str | None = None,
) -> WorkflowRequest:
    """Run jobs side by side, and then the callbacks that apply, each exactly once.

    `on_complete` runs when all jobs have ended, `on_success` when all of them succeeded,
    `on_failure` when one failed. `ctx.parent_results` of a callback has the results of all jobs, in
    order: None for one that failed. The batch fails only when a callback does.
    """
    callbacks = dict(zip(CALLBACKS, (on_complete, on_success, on_failure), strict=True))
    for callback, job in callbacks.items():
        if job is not None and not isinstance(job, Request):
            raise TypeError(
                f"{callback} of a batch needs one job, as handler.s(...) describes it, not "
                f"{_what(job)}"
            )
    return _Batch(_checked(jobs, "batch"), callbacks, name)


def graph(*steps: NamedStep, name: str | None = None) -> WorkflowRequest:
    """Run steps that wait for others by name, in any order without a cycle.

    Each step names in `after` the steps that must succeed first::

        ojs.graph(
            ojs.step("charge", charge.s(order.pk)),
            ojs.step("label", print_label.s(order.pk)),
            ojs.step("ship", ship.s(order.pk), after=["charge", "label"]),
        )
    """
    for step in steps:
        if not isinstance(step, NamedStep):
            raise TypeError(
                f"graph() needs steps made by ojs.step(name, job), not a {type(step).__name__}."
            )
    return _Graph(steps, name)


def step(name: str, part: Part, *, after: Sequence[str] = ()) -> NamedStep:
    """Name a step of a `graph`; it starts when the steps named in `after` have succeeded.

    `ctx.parent_results` has their results, in the order of `after`.
    """
    if isinstance(after, str):
        raise TypeError(f"step({name!r}) needs a list: after=[{after!r}].")
    _checked((part,), f"step({name!r})")
    return NamedStep(name, part, tuple(after))


def get_workflow(workflow_id: UUID | str) -> Workflow:
    """Return a workflow as it is now. Raises WorkflowNotFound."""
    return operations.get(ids.parse_id(workflow_id))


def cancel_workflow(workflow_id: UUID | str) -> Workflow:
    """Cancel a workflow and its jobs that have not ended, and return it.

    Raises WorkflowNotFound, and Conflict when it has ended, or when an atomic handler calls this
    for the workflow of its own job: it must do so with `transaction.on_commit`.
    """
    return operations.cancel(ids.parse_id(workflow_id), completes=_job_of_atomic_handler())


def _job_of_atomic_handler() -> UUID | None:
    """Return the id of the job that is running here, if its handler is atomic."""
    context = current_context()
    handler = None if context is None else registry.handlers.get(context.job.type)
    return (
        context.job.id if context is not None and handler is not None and handler.atomic else None
    )


aget_workflow = sync_to_async(get_workflow)
acancel_workflow = sync_to_async(cancel_workflow)


def _checked(parts: tuple[Part, ...], function: str) -> tuple[Part, ...]:
    others: list[object] = [p for p in parts if not isinstance(p, Request | WorkflowRequest)]
    if others:
        raise TypeError(
            f"{function} needs jobs, as handler.s(...) describes them, and other workflows, not "
            f"{_what(others[0])}"
        )
    return parts


def _what(given: object) -> str:
    """Return what was given in the place of a job, and what was probably meant."""
    if isinstance(given, Handler):
        return f"a handler: write .s(...) after {given.function.__name__}."
    if isinstance(given, list | tuple):
        return f"a {type(given).__name__}. Write a * before a list."
    text = "None" if given is None else f"a {type(given).__name__}"
    return f"{text}. A handler that is called without .s runs at once."


def _definitions(parts: Sequence[Part], path: str) -> list[dict[str, Any]]:
    return [_definition(part, f"{path}[{index}]") for index, part in enumerate(parts)]


def _definition(part: Part, path: str) -> dict[str, Any]:
    if isinstance(part, WorkflowRequest):
        return part.definition(path)
    for option in ("id", "on_full", "block_timeout"):
        if getattr(part.options, option) is not None:
            raise InvalidRequest.of(f"{path}.{option}", "is no option of a step of a workflow")
    try:
        return template(envelope_of(part))
    except OJSError as error:
        raise located(error, path) from None


def _named(name: str | None) -> dict[str, Any]:
    return {} if name is None else {"name": name}


def _at(path: str, attribute: str) -> str:
    return f"{path}.{attribute}" if path else attribute
