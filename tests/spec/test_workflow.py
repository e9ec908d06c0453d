"""Workflows: both forms of a definition, the graph they make, and what is rejected (§3-§10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ojs.extensions.workflows.spec import Condition, Graph, StepOutcome, evaluate
from django_ojs.extensions.workflows.spec.builder import (
    MAX_CHAIN_STEPS,
    MAX_DEPTH,
    MAX_EDGES,
    MAX_JOBS,
)
from django_ojs.extensions.workflows.spec.parse import parse
from django_ojs.spec.errors import CyclicDependency, InvalidRequest, OJSError
from tests.cases import together

JSON = dict[str, Any]


def job(type: str = "work", **more: Any) -> JSON:
    return {"type": type, "args": [], **more}


def chain(*steps: JSON, **more: Any) -> JSON:
    return {"type": "chain", "steps": list(steps), **more}


def group(*jobs: JSON, **more: Any) -> JSON:
    return {"type": "group", "jobs": list(jobs), **more}


def batch(*jobs: JSON, **callbacks: JSON) -> JSON:
    return {"type": "batch", "jobs": list(jobs), "callbacks": callbacks}


def node(id: str, *depends_on: str, **more: Any) -> JSON:
    return {"id": id, "type": "work", "args": [], "depends_on": list(depends_on), **more}


def graph(*steps: JSON, **more: Any) -> JSON:
    return {"steps": list(steps), **more}


def edges(found: Graph) -> dict[str, tuple[str, ...]]:
    return {step.key: step.depends_on for step in found.steps}


def parents(found: Graph) -> dict[str, tuple[str, ...]]:
    return {step.key: step.parents for step in found.jobs}


# What a definition becomes.


def test_chain() -> None:
    found = parse(chain(job("a"), job("b", name="bill"), job("c"), name="order"))
    assert (found.type, found.name) == ("chain", "order")
    assert edges(found) == {"0": (), "1": ("0",), "2": ("1",)}
    assert parents(found) == {"0": (), "1": ("0",), "2": ("0", "1")}
    assert [step.path for step in found.steps] == ["steps[0]", "steps[1]", "steps[2]"]
    assert [step.name for step in found.steps] == [None, "bill", None]
    assert found.steps[1].job == {"type": "b", "args": []}


def test_group() -> None:
    found = parse(group(job("a"), job("b")))
    assert found.type == "group"
    assert edges(found) == {"0": (), "1": ()}
    assert all(step.fails_workflow for step in found.steps)


def test_batch() -> None:
    found = parse(batch(job("a"), job("b"), on_failure=job("f"), on_complete=job("c")))
    assert found.type == "batch"
    assert edges(found) == {
        "0": (),
        "1": (),
        "members": ("0", "1"),
        "on_complete": ("members",),
        "on_failure": ("members",),
    }
    assert parents(found)["on_failure"] == ("0", "1")
    assert {step.key: step.condition for step in found.jobs if step.callback} == {
        "on_complete": Condition.ALL_ENDED,
        "on_failure": Condition.ANY_FAILED,
    }
    assert {step.key for step in found.steps if step.fails_workflow} == {
        "on_complete",
        "on_failure",
    }
    assert found.jobs[-1].path == "callbacks.on_failure"


def test_group_in_a_chain_passes_its_results_on() -> None:
    found = parse(chain(job("a"), group(job("b"), job("c"), name="both"), job("d")))
    assert edges(found) == {
        "0": (),
        "1.0": ("0",),
        "1.1": ("0",),
        "1": ("1.0", "1.1"),
        "2": ("1",),
    }
    assert parents(found) == {"0": (), "1.0": ("0",), "1.1": ("0",), "2": ("0", "1")}
    join = found.steps[3]
    assert (join.is_join, join.name, join.parents) == (True, "both", ("1.0", "1.1"))
    assert found.steps[1].path == "steps[1].jobs[0]"


def test_batch_in_a_chain_ends_with_its_callbacks() -> None:
    found = parse(chain(batch(job(), on_success=job("s")), job("d")))
    assert edges(found) == {
        "0.0": (),
        "0.members": ("0.0",),
        "0.on_success": ("0.members",),
        "0.ended": ("0.members",),
        "0": ("0.ended", "0.on_success"),
        "1": ("0",),
    }
    assert parents(found)["1"] == ("0",)
    assert next(step for step in found.steps if step.key == "0").parents == ("0.0",)


def test_chain_in_a_chain_has_the_result_of_its_last_step() -> None:
    found = parse(chain(job("a"), chain(job("b"), job("c")), job("d")))
    assert parents(found) == {"0": (), "1.0": ("0",), "1.1": ("0", "1.0"), "2": ("0", "1")}
    join = found.steps[3]
    assert (join.key, join.parents, join.last_result) == ("1", ("1.1",), True)


def test_wide_groups_cost_an_edge_for_each_job() -> None:
    wide = group(*[job()] * 1_000)
    found = parse(chain(wide, wide))
    assert sum(len(step.depends_on) for step in found.steps) == 3_000


@together(
    ("definition", "expected"),
    [
        (graph(node("a"), node("b", "a"), node("c", "b")), "chain"),
        (graph(node("a")), "chain"),
        (graph(node("a"), node("b")), "group"),
        (graph(node("a"), node("b"), node("on_failure", "a", "b")), "batch"),
        (graph(node("a"), node("b"), callbacks={"on_success": job()}), "batch"),
        (graph(node("a"), node("b"), node("c", "a", "b")), "graph"),
        (graph(node("a"), node("b", "a"), node("on-complete", "b")), "graph"),
        (graph(node("a"), node("b", "a"), node("c", "a")), "graph"),
    ],
)
def test_type_of_a_graph(definition: JSON, expected: str) -> None:
    assert parse(definition).type == expected


def test_graph_is_sorted() -> None:
    found = parse(graph(node("last", "x", "y"), node("y", "x"), node("x")))
    assert [step.name for step in found.steps] == ["x", "y", "last"]
    assert edges(found) == {"2": (), "1": ("2",), "0": ("2", "1")}
    assert parents(found)["0"] == ("2", "1")
    assert found.steps[0].job == {"type": "work", "args": []}


def test_line_gives_each_step_all_results_before_it() -> None:
    found = parse(graph(node("a"), node("b", "a"), node("c", "b")))
    assert parents(found) == {"0": (), "1": ("0",), "2": ("0", "1")}


@pytest.mark.parametrize(
    "step",
    [
        node("on_failure"),
        node("callback-on_failure", "a", "b"),
        node("warn", "b", callback="on_failure"),
    ],
)
def test_callback_of_a_graph(step: JSON) -> None:
    found = parse(graph(step, node("a"), node("b", "a")))
    callback = found.steps[-1]
    assert (callback.callback, callback.depends_on) == ("on_failure", ("members",))
    assert (callback.parents, callback.name) == (("1", "2"), step["id"])
    assert callback.path == "steps[0]"


def test_nested_workflow_of_a_graph() -> None:
    found = parse(graph(node("a"), {"id": "b", "depends_on": ["a"], **group(job(), job())}))
    assert edges(found) == {"0": (), "1.0": ("0",), "1.1": ("0",), "1": ("1.0", "1.1")}
    assert found.steps[-1].name == "b"


def test_options_of_the_workflow_are_defaults() -> None:
    plain, own = job(), job(options={"queue": "own", "tags": ["x"]})
    flat = job(queue="flat")
    found = parse(chain(plain, own, flat, options={"queue": "q", "priority": 5}))
    assert [step.job["options"] for step in found.jobs if step.job] == [
        {"queue": "q", "priority": 5},
        {"queue": "own", "priority": 5, "tags": ["x"]},
        {"priority": 5},
    ]


def test_options_of_a_nested_workflow_are_defaults_of_its_jobs() -> None:
    inner = group(job(), options={"queue": "inner", "tags": ["x"]})
    found = parse(chain(inner, job(), options={"queue": "outer", "priority": 5}))
    assert [step.job["options"] for step in found.jobs if step.job] == [
        {"queue": "inner", "priority": 5, "tags": ["x"]},
        {"queue": "outer", "priority": 5},
    ]
    named = graph({"id": "a", **inner}, node("on_failure"), options={"queue": "outer"})
    assert [step.job["options"]["queue"] for step in parse(named).jobs if step.job] == [
        "inner",
        "outer",
    ]


def test_clients_use_either_list() -> None:
    assert parse({"type": "chain", "jobs": [job(), job()]}).type == "chain"
    assert parse({"type": "group", "steps": [job()]}).steps[0].path == "steps[0]"


def test_job_may_have_the_type_of_a_workflow() -> None:
    assert len(parse(chain(job("group"))).jobs) == 1


# What is rejected.


def nested(depth: int) -> JSON:
    return chain(job()) if depth == 1 else chain(nested(depth - 1))


LONG = "x" * 256
DEEP = ".".join(["steps[0]"] * MAX_DEPTH)

REJECTED: list[tuple[object, str]] = [
    ([], "a workflow must be an object"),
    ({"type": "saga"}, "type must be chain, group or batch"),
    (chain(name=5), "name must be a non-empty string"),
    (chain(name=LONG), "name must be at most 255 characters long"),
    (chain(name="\x00"), "name contains"),
    (chain(options=[]), "options must be an object"),
    ({"type": "chain"}, "steps is required"),
    ({"type": "group", "jobs": {}}, "jobs must be an array"),
    (chain(), "steps must contain at least one element"),
    (chain(job(), group()), "steps[1].jobs must contain at least one element"),
    (chain("x"), "steps[0] must be an object"),  # type: ignore[arg-type]
    (chain(job(name="")), "steps[0].name must be a non-empty string"),
    (chain({"type": "a"}), "steps[0].args is required"),
    (chain(group({"args": []})), "steps[0].jobs[0].type is required"),
    (chain(job(options=5)), "steps[0].options must be an object"),
    (chain(job("Bad")), "steps[0].type must be dotted segments"),
    (chain(job(), job(priority=1000)), "steps[1].priority must be between"),
    (chain(nested(MAX_DEPTH)), f"{DEEP} is nested more than 10 levels deep"),
    (chain(*[job()] * (MAX_CHAIN_STEPS + 1)), "steps must contain at most 1000 steps in a chain"),
    (
        graph(node("0"), *(node(str(n + 1), str(n)) for n in range(MAX_CHAIN_STEPS))),
        "steps must contain at most 1000 steps in a chain",
    ),
    (batch(job()), "callbacks must hold at least one of on_complete, on_success, on_failure"),
    (batch(job(), on_fail=job()), "callbacks must hold only on_complete"),
    (batch(job(), on_failure=group(job())), "callbacks.on_failure must be a job"),
    (batch(job(), on_failure=job("B")), "callbacks.on_failure.type must be dotted"),
    (group(job(), callbacks={"on_failure": job()}), "callbacks belong to a batch"),
    (chain(chain(job(), callbacks={"a": 1})), "steps[0].callbacks belong to a batch"),
    (graph(), "steps must contain at least one element"),
    (graph("a"), "steps[0] must be an object"),  # type: ignore[arg-type]
    (graph(job()), "steps[0].id is required"),
    (graph(node("a"), node("b"), node("a")), "steps[2].id is also the id of steps[0]"),
    (graph(node("a", depends_on="b")), "steps[0].depends_on must be an array"),
    (graph(node("a", depends_on=[5])), "steps[0].depends_on[0] must be the id of another step"),
    (graph(node("a"), node("b", "a", "c")), "steps[1].depends_on[1] is not the id of a step"),
    (graph(node("a", "a")), "steps[0].depends_on[0] is the step itself"),
    (
        graph(node("x"), node("a", "x", "c"), node("b", "a"), node("c", "b")),
        "steps[1].depends_on[1] closes a cycle: steps[1] -> steps[3] -> steps[2] -> steps[1]",
    ),
    (graph(node("on_failure")), "steps must contain a step that is not a callback"),
    (graph(node("a"), node("b", callback="x")), "steps[1].callback must be one of on_complete"),
    (
        graph(node("a"), node("on_failure"), node("w", callback="on_failure")),
        "steps[2] is a second on_failure callback, beside steps[1]",
    ),
    (
        graph(node("a"), node("b", "on_failure"), node("on_failure")),
        "steps[1].depends_on[0] is a callback",
    ),
    (
        graph(node("a"), node("b"), node("on_failure", "a")),
        "steps[2].depends_on must name every last step, or be empty",
    ),
]


@pytest.mark.requirement("WF-02", "WF-05", "WF-13", "WF-31")
@together(("definition", "message"), REJECTED, ids=[text for _, text in REJECTED])
def test_rejected(definition: Any, message: str) -> None:
    with pytest.raises(OJSError) as caught:
        parse(definition)
    assert caught.value.message.startswith(message)
    assert caught.value.status == 400
    field = caught.value.details.get("field")
    assert caught.value.details["validation_errors"] == [
        {"path": f"$.{field}" if field else "$", "message": caught.value.message}
    ]
    assert field is None or caught.value.message.startswith(field)


CYCLES = {
    "the step itself": [node("a", "a")],
    "of two": [node("a", "b"), node("b", "a")],
    "of three": [node("a", "c"), node("b", "a"), node("c", "b")],
    "after steps that may start": [node("a"), node("b", "a", "c"), node("c", "b")],
    "before the last step": [node("a", "b"), node("b", "a"), node("c", "b")],
    "beside steps that may start": [node("a"), node("b", "a"), node("x", "y"), node("y", "x")],
    "two of them": [node("a", "b"), node("b", "a"), node("x", "y"), node("y", "x")],
    "among the members of a batch": [node("a", "b"), node("b", "a"), node("c"), node("on_success")],
}


@pytest.mark.requirement("WF-37")
@together("name", CYCLES)
def test_a_cycle_has_its_own_error(name: str) -> None:
    with pytest.raises(CyclicDependency):
        parse(graph(*CYCLES[name]))


def test_at_the_limits() -> None:
    assert len(parse(group(*[job()] * 10_000)).jobs) == 10_000
    parse(nested(MAX_DEPTH))


def test_over_the_limit_of_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_ojs.extensions.workflows.spec.builder.MAX_JOBS", 3)
    parse(chain(group(job(), job()), job()))
    with pytest.raises(InvalidRequest, match=r"steps\[1\]\.jobs\[1\] is over the limit of 3 jobs"):
        parse(chain(group(job(), job()), group(job(), job())))
    assert MAX_JOBS > 10_000


def test_over_the_limit_of_dependencies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_ojs.extensions.workflows.spec.dependencies.MAX_DEPENDENCIES", 2)
    parse(graph(node("a"), node("b", "a"), node("c", "b")))
    with pytest.raises(InvalidRequest, match=r"steps\[2\]\.depends_on is over the limit of 2"):
        parse(graph(node("a"), node("b", "a"), node("c", "a", "b")))


WIDE = graph(node("a"), node("b"), {"id": "c", "depends_on": ["a", "b"], **group(job(), job())})


@pytest.mark.parametrize(
    ("definition", "path", "edges"),
    [
        # Two members with two dependencies and two parents each, and the join behind them.
        (WIDE, r"steps\[2\]", 12),
        # Each step of a nested chain has the parents of the chains around it.
        (chain(job(), job(), chain(job(), chain(job(), job()))), r"steps\[2\]", 20),
        (chain(job(), job(), group(job(), job())), r"steps\[2\]", 12),
        (batch(job(), job(), on_success=job()), r"callbacks\.on_success", 7),
    ],
)
def test_over_the_limit_of_edges(
    definition: JSON, path: str, edges: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_ojs.extensions.workflows.spec.builder.MAX_EDGES", edges)
    parse(definition)
    monkeypatch.setattr("django_ojs.extensions.workflows.spec.builder.MAX_EDGES", edges - 1)
    match = rf"{path} is over the limit of {edges - 1} dependencies and parent results"
    with pytest.raises(InvalidRequest, match=match):
        parse(definition)


def test_the_join_of_the_workflow_itself_is_named_by_its_callbacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("django_ojs.extensions.workflows.spec.builder.MAX_EDGES", 3)
    with pytest.raises(InvalidRequest, match=r"^callbacks is over the limit of 3 "):
        parse(batch(job(), job(), on_success=job()))


def test_nesting_cannot_escape_the_limits_of_edges() -> None:
    # The longest chain is within them.
    parse(chain(*[job()] * MAX_CHAIN_STEPS))
    many = [str(number) for number in range(600)]
    nested_group = {"id": "last", "depends_on": many, **group(*[job()] * 600)}
    for definition in (
        graph(*map(node, many), nested_group),
        chain(*[job()] * 400, group(*[job()] * 2_000)),
        chain(*[job()] * 800, chain(*[job()] * 800)),
    ):
        with pytest.raises(InvalidRequest, match=f"the limit of {MAX_EDGES} dependencies"):
            parse(definition)


# How a workflow ends: the graph against the rules of §8 and §10, applied to the nesting itself.

_leaves = st.builds(job)


def _composed(parts: st.SearchStrategy[JSON]) -> st.SearchStrategy[JSON]:
    lists = st.lists(parts, min_size=1, max_size=3)
    callbacks = st.dictionaries(
        st.sampled_from(["on_complete", "on_success", "on_failure"]), _leaves, min_size=1
    )
    return st.one_of(
        lists.map(lambda items: chain(*items)),
        lists.map(lambda items: group(*items)),
        st.builds(lambda items, named: batch(*items, **named), lists, callbacks),
    )


definitions = _composed(st.recursive(_leaves, _composed, max_leaves=12))


class Rules:
    """Runs a nested definition as ojs-workflows describes it, one primitive at a time."""

    def __init__(self, succeeds: Callable[[str], bool]) -> None:
        self.succeeds = succeeds
        self.ran: set[str] = set()

    def run(self, item: JSON, path: str) -> bool:
        match item:
            case {"type": "chain", "steps": steps}:
                return all(
                    self.run(step, f"{path}steps[{index}].") for index, step in enumerate(steps)
                )
            case {"type": "group", "jobs": jobs}:
                return self.all_of(jobs, path)
            case {"type": "batch", "jobs": jobs, "callbacks": callbacks}:
                succeeded = self.all_of(jobs, path)
                fired = {"on_complete", "on_success" if succeeded else "on_failure"}
                ended = [
                    self.run(callbacks[name], f"{path}callbacks.{name}.")
                    for name in sorted(fired & callbacks.keys())
                ]
                return all(ended)
        self.ran.add(path[:-1])
        return self.succeeds(path[:-1])

    def all_of(self, jobs: list[JSON], path: str) -> bool:
        ended = [self.run(each, f"{path}jobs[{index}].") for index, each in enumerate(jobs)]
        return all(ended)


def run_graph(found: Graph, succeeds: Callable[[str], bool]) -> tuple[set[str], bool]:
    """Run the steps in order; return the paths of the jobs that ran, and how the workflow ended."""
    outcomes: dict[str, StepOutcome] = {}
    ran: set[str] = set()
    for step in found.steps:
        outcome = evaluate(step, [outcomes[key] for key in step.depends_on])
        if outcome is None:
            ran.add(step.path)
            outcome = StepOutcome.SUCCEEDED if succeeds(step.path) else StepOutcome.FAILED
        assert step.key not in outcomes
        outcomes[step.key] = outcome
    failed = any(
        step.fails_workflow and outcomes[step.key] is StepOutcome.FAILED for step in found.steps
    )
    return ran, not failed


@given(definitions, st.data())
def test_graph_ends_as_the_nesting_does(definition: JSON, data: st.DataObject) -> None:
    found = parse(definition)
    failing = data.draw(st.sets(st.sampled_from([step.path for step in found.jobs])))
    rules = Rules(lambda path: path not in failing)
    completed = rules.run(definition, "")
    assert run_graph(found, lambda path: path not in failing) == (rules.ran, completed)


@given(definitions)
def test_parents_have_ended_before_their_step(definition: JSON) -> None:
    before: dict[str, set[str]] = {}
    for step in parse(definition).steps:
        before[step.key] = set(step.depends_on).union(*(before[key] for key in step.depends_on))
        assert set(step.parents) <= before[step.key]


@given(st.lists(st.sets(st.integers(0, 7), max_size=4), min_size=1, max_size=8))
def test_a_graph_is_sorted_or_has_a_cycle(wanted: list[set[int]]) -> None:
    size = len(wanted)
    before = [{each % size for each in found} for found in wanted]
    definition = graph(*(node(str(i), *map(str, sorted(d))) for i, d in enumerate(before)))
    if _reaches_itself(before):
        with pytest.raises(CyclicDependency, match=r"^steps\[\d\].depends_on\[\d\] "):
            parse(definition)
        return
    seen: set[str] = set()
    for step in parse(definition).steps:
        assert seen.issuperset(step.depends_on)
        seen.add(step.key)
    assert len(seen) == size


def _reaches_itself(before: list[set[int]]) -> bool:
    reached = [set(found) for found in before]
    for _ in before:
        for index, found in enumerate(reached):
            reached[index] = found.union(*(reached[each] for each in found))
    return any(index in found for index, found in enumerate(reached))
