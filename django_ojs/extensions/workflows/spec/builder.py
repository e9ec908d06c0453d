"""Adds jobs and nested workflows to a graph, in topological order (ojs-workflows §10)."""

from collections.abc import Mapping, Sized
from dataclasses import dataclass, field, replace
from typing import Any, Final

from django_ojs.extensions.workflows.spec.definition import (
    at,
    callbacks_of,
    is_nested,
    job_of,
    name_of,
    object_of,
    parts_of,
    type_of,
)
from django_ojs.extensions.workflows.spec.graph import CallbackName, Condition, GraphStep
from django_ojs.spec.envelope import Limits
from django_ojs.spec.errors import InvalidRequest

#: Levels of nested workflows; ojs-workflows §10.2 asks for three.
MAX_DEPTH: Final = 10
MAX_JOBS: Final = 20_000
#: Each step of a chain gets the results of all steps before it: their number grows quadratically.
MAX_CHAIN_STEPS: Final = 1_000
#: `depends_on` and `parents` of all steps together; a chain of MAX_CHAIN_STEPS jobs has 500,499.
#: Nesting multiplies them: each job of a nested workflow also has the parents of that workflow.
MAX_EDGES: Final = 600_000

_CONDITIONS: Final[Mapping[CallbackName, Condition]] = {
    "on_complete": Condition.ALL_ENDED,
    "on_success": Condition.ALL_SUCCEEDED,
    "on_failure": Condition.ANY_FAILED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a part of the definition is: in the client's JSON and in the graph.

    `options` are the defaults of the jobs there.
    """

    path: str = ""
    key: str = ""
    depends_on: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    depth: int = 1
    fails_workflow: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)

    def child(self, name: int | str) -> str:
        """Return the key of a part of the workflow that is here."""
        return f"{self.key}.{name}" if self.key else str(name)


@dataclass(slots=True, kw_only=True)
class GraphBuilder:
    """The steps of one workflow."""

    limits: Limits
    steps: list[GraphStep] = field(default_factory=list)
    jobs: int = 0
    edges: int = 0

    def parts(self, data: Mapping[str, Any], here: Position) -> tuple[str, ...]:
        """Add the parts of a chain, group or batch; return the keys that stand for each part."""
        path, items = parts_of(data, here.path)
        workflow_type = type_of(data, here.path)
        if workflow_type == "chain":
            self._check_no_callbacks(data, here)
            return self._chain(items, path, here)
        if workflow_type == "group":
            self._check_no_callbacks(data, here)
            return self._members(items, path, here)
        callbacks = callbacks_of(data, here.path)
        # The callbacks handle the failure of a member: it does not fail the workflow (§9.4).
        members = self._members(items, path, replace(here, fails_workflow=False))
        located = {
            name: (at(here.path, f"callbacks.{name}"), item) for name, item in callbacks.items()
        }
        self.callbacks(located, members, here)
        return members

    def part(self, item: object, here: Position) -> str:
        """Add a job or a nested workflow; return the key that stands for it."""
        if not isinstance(item, Mapping):
            raise InvalidRequest.of(here.path, "must be an object")
        if not is_nested(item):
            return self._job(item, here)
        if here.depth == MAX_DEPTH:
            raise InvalidRequest.of(here.path, f"is nested more than {MAX_DEPTH} levels deep")
        options = {**here.options, **object_of(item, "options", here.path)}
        inner = replace(here, depth=here.depth + 1, options=options)
        parts = self.parts(item, inner)
        name = name_of(item, here.path)
        match item["type"]:
            case "chain":
                return self._join(here.key, parts, here, name=name, last_result=True)
            case "group":
                return self._join(here.key, parts, here, name=name)
        # The batch is done when its members have ended, in whatever way, and no callback failed
        # (§8.3).
        ended = self._join(
            inner.child("ended"),
            (inner.child("members"),),
            here,
            condition=Condition.ALL_ENDED,
            fails_workflow=False,
        )
        callbacks = tuple(inner.child(each) for each in callbacks_of(item, here.path))
        return self._join(
            here.key,
            (ended, *callbacks),
            here,
            name=name,
            condition=Condition.NONE_FAILED,
            parents=parts,
        )

    def callbacks(
        self,
        located: Mapping[CallbackName, tuple[str, object]],
        members: tuple[str, ...],
        here: Position,
    ) -> None:
        """Add the callbacks of a batch, each with its path; all get the results of all members."""
        joined = self._join(here.child("members"), members, here, fails_workflow=False)
        for name, (path, item) in located.items():
            if not isinstance(item, Mapping) or is_nested(item):
                raise InvalidRequest.of(path, "must be a job")
            position = replace(
                here, path=path, key=here.child(name), depends_on=(joined,), parents=members
            )
            self._job(item, position, callback=name)

    def _chain(self, items: list[Any], path: str, here: Position) -> tuple[str, ...]:
        check_chain_length(items, path)
        parts: tuple[str, ...] = ()
        for index, item in enumerate(items):
            position = replace(
                here,
                path=f"{path}[{index}]",
                key=here.child(index),
                depends_on=parts[-1:] or here.depends_on,
                parents=here.parents + parts,
            )
            parts += (self.part(item, position),)
        return parts

    def _members(self, items: list[Any], path: str, here: Position) -> tuple[str, ...]:
        return tuple(
            self.part(item, replace(here, path=f"{path}[{index}]", key=here.child(index)))
            for index, item in enumerate(items)
        )

    def _job(
        self, item: Mapping[str, Any], here: Position, callback: CallbackName | None = None
    ) -> str:
        self.jobs += 1
        if self.jobs > MAX_JOBS:
            raise InvalidRequest.of(here.path, f"is over the limit of {MAX_JOBS} jobs")
        self._add(
            GraphStep(
                key=here.key,
                job=job_of(item, here.options, here.path, self.limits),
                depends_on=here.depends_on,
                condition=Condition.ALL_SUCCEEDED if callback is None else _CONDITIONS[callback],
                parents=here.parents,
                callback=callback,
                fails_workflow=here.fails_workflow,
                name=name_of(item, here.path),
                path=here.path,
            )
        )
        return here.key

    def _join(
        self,
        key: str,
        depends_on: tuple[str, ...],
        here: Position,
        *,
        name: str | None = None,
        condition: Condition = Condition.ALL_SUCCEEDED,
        parents: tuple[str, ...] | None = None,
        last_result: bool = False,
        fails_workflow: bool | None = None,
    ) -> str:
        results = depends_on if parents is None else parents
        self._add(
            GraphStep(
                key=key,
                job=None,
                depends_on=depends_on,
                condition=condition,
                parents=results[-1:] if last_result else results,
                last_result=last_result,
                fails_workflow=here.fails_workflow if fails_workflow is None else fails_workflow,
                name=name,
                path=here.path,
            )
        )
        return key

    def _add(self, step: GraphStep) -> None:
        self.edges += len(step.depends_on) + len(step.parents)
        if self.edges > MAX_EDGES:
            # Only the join in front of the callbacks of the workflow itself has no path.
            raise InvalidRequest.of(
                step.path or "callbacks",
                f"is over the limit of {MAX_EDGES} dependencies and parent results",
                hint="Each job of a nested workflow has the dependencies and the parent results"
                " of the nested workflow.",
            )
        self.steps.append(step)

    def _check_no_callbacks(self, data: Mapping[str, Any], here: Position) -> None:
        if data.get("callbacks"):
            raise InvalidRequest.of(at(here.path, "callbacks"), "belong to a batch")


def check_chain_length(steps: Sized, path: str) -> None:
    """Raise InvalidRequest when a chain has too many steps."""
    if len(steps) > MAX_CHAIN_STEPS:
        raise InvalidRequest.of(path, f"must contain at most {MAX_CHAIN_STEPS} steps in a chain")
