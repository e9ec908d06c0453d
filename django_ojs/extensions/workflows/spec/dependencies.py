"""A workflow that is sent as a graph: steps with `id` and `depends_on` (http-binding §14.1)."""

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from django_ojs.extensions.workflows.spec.builder import GraphBuilder, Position, check_chain_length
from django_ojs.extensions.workflows.spec.definition import callbacks_of, list_of, text_of
from django_ojs.extensions.workflows.spec.graph import CALLBACKS, CallbackName, WorkflowType
from django_ojs.spec.errors import CyclicDependency, InvalidRequest

MAX_DEPENDENCIES: Final = 100_000

#: Clients that send no `callbacks` object mark a step by its id: on_failure, callback-on_failure.
_CALLBACK_ID: Final = re.compile(r"(?:callbacks?[-_.:])?(on[-_](?:complete|success|failure))")


def read_graph(data: Mapping[str, Any], builder: GraphBuilder, root: Position) -> WorkflowType:
    """Add the steps of a graph to the builder; return the type whose shape the graph has."""
    path, items = list_of(data, ("steps",), "")
    steps = [_Item(item, f"{path}[{index}]") for index, item in enumerate(items)]
    ids = _ids(steps)
    callbacks = _callbacks(data, steps)
    members = [step for step in steps if step.callback is None]
    if not members:
        raise InvalidRequest.of(path, "must contain a step that is not a callback")
    before = _dependencies(steps, ids)
    order = _sorted([ids[step.id] for step in members], before, steps)
    is_line = not callbacks and _is_line(order, before)
    if is_line:
        check_chain_length(order, path)
    keys: dict[int, str] = {}
    for index in order:
        depends_on = tuple(keys[each] for each in before[index])
        keys[index] = builder.part(
            {**steps[index].item, "name": steps[index].id},
            replace(
                root,
                path=steps[index].path,
                key=str(index),
                depends_on=depends_on,
                parents=tuple(keys.values()) if is_line else depends_on,
                fails_workflow=not callbacks,
            ),
        )
    if callbacks:
        _check_callbacks(steps, ids, before)
        in_order = tuple(keys[ids[step.id]] for step in members)
        builder.callbacks(callbacks, in_order, root)
    return _shape(
        is_line=is_line,
        is_flat=not any(before[index] for index in order),
        callbacks=bool(callbacks),
    )


class _Item:
    """A step as it was sent, with its path."""

    def __init__(self, item: object, path: str) -> None:
        if not isinstance(item, Mapping):
            raise InvalidRequest.of(path, "must be an object")
        found = text_of(item, "id", path)
        if found is None:
            raise InvalidRequest.of(f"{path}.id", "is required")
        self.item, self.path, self.id = item, path, found
        self.callback = self._callback()

    def _callback(self) -> CallbackName | None:
        marked = text_of(self.item, "callback", self.path)
        if marked is not None and marked not in CALLBACKS:
            raise InvalidRequest.of(
                f"{self.path}.callback", f"must be one of {', '.join(CALLBACKS)}"
            )
        named = _CALLBACK_ID.fullmatch(self.id)
        wanted = marked or (named and named[1].replace("-", "_"))
        return next((name for name in CALLBACKS if name == wanted), None)


def _ids(steps: list[_Item]) -> dict[str, int]:
    ids: dict[str, int] = {}
    for index, step in enumerate(steps):
        first = ids.setdefault(step.id, index)
        if first != index:
            raise InvalidRequest.of(f"{step.path}.id", f"is also the id of {steps[first].path}")
    return ids


def _callbacks(
    data: Mapping[str, Any], steps: list[_Item]
) -> dict[CallbackName, tuple[str, object]]:
    found: dict[CallbackName, tuple[str, object]] = {}
    if data.get("callbacks"):
        found = {name: (f"callbacks.{name}", item) for name, item in callbacks_of(data, "").items()}
    for step in steps:
        if step.callback is None:
            continue
        if step.callback in found:
            rule = f"is a second {step.callback} callback, beside {found[step.callback][0]}"
            raise InvalidRequest.of(step.path, rule)
        found[step.callback] = (step.path, {**step.item, "name": step.id})
    return {name: found[name] for name in CALLBACKS if name in found}


def _dependencies(steps: list[_Item], ids: Mapping[str, int]) -> list[list[int]]:
    """Return the indexes of the steps that each step depends on, each once."""
    total = 0
    before: list[list[int]] = []
    for step in steps:
        given = step.item.get("depends_on")
        place = f"{step.path}.depends_on"
        if given is not None and not isinstance(given, list):
            raise InvalidRequest.of(place, "must be an array of the ids of other steps")
        found: dict[int, None] = {}
        for number, name in enumerate(given or ()):
            here = f"{place}[{number}]"
            if not isinstance(name, str):
                raise InvalidRequest.of(here, "must be the id of another step")
            if name not in ids:
                raise InvalidRequest.of(here, "is not the id of a step of this workflow")
            if name == step.id:
                raise CyclicDependency.of(here, "is the step itself")
            if step.callback is None and steps[ids[name]].callback is not None:
                raise InvalidRequest.of(here, "is a callback: no step may depend on one")
            found[ids[name]] = None
        total += len(found)
        if total > MAX_DEPENDENCIES:
            raise InvalidRequest.of(place, f"is over the limit of {MAX_DEPENDENCIES} dependencies")
        before.append(list(found))
    return before


def _sorted(members: list[int], before: list[list[int]], steps: list[_Item]) -> list[int]:
    """Return the members in topological order; steps without dependencies keep their order."""
    missing = {index: len(before[index]) for index in members}
    after: dict[int, list[int]] = {index: [] for index in members}
    for index in members:
        for each in before[index]:
            after[each].append(index)
    free = deque(index for index in members if not missing[index])
    order: list[int] = []
    while free:
        index = free.popleft()
        order.append(index)
        for each in after[index]:
            missing[each] -= 1
            if not missing[each]:
                free.append(each)
    if len(order) < len(members):
        raise _cycle({index for index in members if missing[index]}, before, steps)
    return order


def _cycle(left: set[int], before: list[list[int]], steps: list[_Item]) -> CyclicDependency:
    """Return the error that names a cycle among the steps that could not be sorted."""
    # Each of them depends on another of them, so following the dependencies leads into a cycle.
    walked: dict[int, int] = {}
    index = min(left)
    while index not in walked:
        walked[index] = next(number for number, each in enumerate(before[index]) if each in left)
        index = before[index][walked[index]]
    trail = list(walked)
    cycle = trail[trail.index(index) :]
    first = cycle[0]
    named = " -> ".join(steps[each].path for each in [*cycle, first])
    # The index is searched in the client's list, which may name a step twice.
    target = steps[before[first][walked[first]]].id
    number = list(steps[first].item["depends_on"]).index(target)
    return CyclicDependency.of(
        f"{steps[first].path}.depends_on[{number}]", f"closes a cycle: {named}"
    )


def _is_line(order: list[int], before: list[list[int]]) -> bool:
    expected = [[], *([index] for index in order[:-1])]
    return [before[index] for index in order] == expected


def _check_callbacks(steps: list[_Item], ids: Mapping[str, int], before: list[list[int]]) -> None:
    """Check that each callback depends on every step, directly or through others, or on none."""
    members = {ids[step.id] for step in steps if step.callback is None}
    last = members - {each for index in members for each in before[index]}
    for step in steps:
        named = {each for each in before[ids[step.id]] if steps[each].callback is None}
        if step.callback is not None and named and not last <= named:
            raise InvalidRequest.of(
                f"{step.path}.depends_on",
                "must name every last step, or be empty: a callback waits for the whole batch",
            )


def _shape(*, is_line: bool, is_flat: bool, callbacks: bool) -> WorkflowType:
    if is_line:
        return "chain"
    if not is_flat:
        return "graph"
    return "batch" if callbacks else "group"
