"""The table of ojs-core §6.3, written out a second time: whoever changes one must change both."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from itertools import product

import pytest

from django_ojs.spec.errors import Conflict
from django_ojs.spec.states import (
    TERMINAL,
    TRANSITIONS,
    WAITING,
    State,
    Transition,
    Trigger,
    allows,
    initial,
    sources,
)
from tests.cases import together

# From, trigger, to.
CORE_6_3 = [
    (None, "push", "scheduled"),
    (None, "push", "available"),
    (None, "push", "pending"),
    ("scheduled", "timer", "available"),
    ("pending", "activate", "available"),
    ("available", "fetch", "active"),
    ("active", "ack", "completed"),
    ("active", "fail", "retryable"),
    ("active", "fail", "discarded"),
    ("active", "cancel", "cancelled"),
    ("active", "lapse", "available"),
    ("retryable", "timer", "available"),
    ("scheduled", "cancel", "cancelled"),
    ("available", "cancel", "cancelled"),
    ("pending", "cancel", "cancelled"),
    ("retryable", "cancel", "cancelled"),
    ("discarded", "retry", "available"),
]
# What other documents ask for, each with its reason.
EXTRA = {
    "worker-protocol 5.5 (4): no attempts are left when the lease ends": [
        ("active", "lapse", "discarded"),
    ],
    "http-binding, nack with requeue; worker-protocol 7.2: given back": [
        ("active", "return", "available"),
    ],
    "core 5.2 expires_at: the deadline passed before it ran": [
        ("scheduled", "expire", "discarded"),
        ("available", "expire", "discarded"),
        ("pending", "expire", "discarded"),
        ("retryable", "expire", "discarded"),
    ],
    "queue-config 5.3, discard: the queue it waited in is deleted": [
        ("scheduled", "delete_queue", "discarded"),
        ("available", "delete_queue", "discarded"),
        ("pending", "delete_queue", "discarded"),
        ("retryable", "delete_queue", "discarded"),
    ],
    "backpressure, drop_oldest; rate-limiting 6.2, drop": [("available", "drop", "discarded")],
    "rate-limiting 6.2, reschedule": [("available", "reschedule", "scheduled")],
}
ROWS = CORE_6_3 + [row for rows in EXTRA.values() for row in rows]
STATES = (
    "scheduled",
    "available",
    "pending",
    "active",
    "completed",
    "retryable",
    "cancelled",
    "discarded",
)
EVENTS = sorted({trigger for _, trigger, _ in ROWS})
# core §6.4: what must be rejected, whatever the trigger.
INVALID = [
    ("available", "completed"),
    *[("completed", target) for target in STATES],
    ("discarded", "active"),
    *[("cancelled", target) for target in STATES],
    ("scheduled", "active"),
    ("retryable", "active"),
]


def as_row(transition: Transition) -> tuple[str | None, str, str]:
    source = None if transition.source is None else transition.source.value
    return source, transition.trigger.value, transition.target.value


@pytest.mark.requirement("CORE-6.1-1")
def test_there_are_exactly_the_eight_states_of_6_1() -> None:
    assert [state.value for state in State] == list(STATES)


def test_there_are_no_other_events() -> None:
    assert sorted(trigger.value for trigger in Trigger) == EVENTS


@pytest.mark.requirement("CORE-6.3-1")
def test_the_first_rows_are_the_core_table_and_nothing_follows_but_the_extra_rows() -> None:
    rows = [as_row(transition) for transition in TRANSITIONS]
    assert rows[: len(CORE_6_3)] == CORE_6_3
    assert sorted(rows[len(CORE_6_3) :], key=str) == sorted(ROWS[len(CORE_6_3) :], key=str)


@together("row", ROWS, ids=str)
def test_a_row_of_the_table_is_allowed(row: tuple[str | None, str, str]) -> None:
    source, trigger, target = row
    if source is None:
        assert initial(State(target)) == target
    else:
        assert allows(Trigger(trigger), State(source), State(target))
        assert source in sources(Trigger(trigger), State(target))


def test_whatever_is_no_row_is_not_allowed() -> None:
    tried = set(product(STATES, EVENTS, STATES)) - set(ROWS)
    assert len(tried) == 8 * len(EVENTS) * 8 - len([row for row in ROWS if row[0] is not None])
    wrong = [
        row for row in tried if allows(Trigger(row[1]), source=State(row[0]), target=State(row[2]))
    ]
    assert wrong == []


@together(("trigger", "target"), sorted(set(product(EVENTS, STATES)) - {row[1:] for row in ROWS}))
def test_an_event_never_leads_to_a_state_the_table_does_not_name(trigger: str, target: str) -> None:
    with pytest.raises(Conflict, match=rf"by {trigger} to {target}"):
        sources(Trigger(trigger), State(target))


@together(("trigger", "target"), sorted({row[1:] for row in ROWS if row[0] is not None}))
def test_the_sources_of_a_transition_are_in_the_order_of_the_table(
    trigger: str, target: str
) -> None:
    expected = [row[0] for row in ROWS if row[1:] == (trigger, target)]
    assert list(sources(Trigger(trigger), State(target))) == expected


@together(("source", "target"), INVALID)
def test_the_invalid_transitions_of_6_4_have_no_event(source: str, target: str) -> None:
    assert [e for e in Trigger if allows(e, State(source), State(target))] == []


@pytest.mark.parametrize("state", ["active", "completed", "retryable", "cancelled", "discarded"])
def test_a_job_cannot_be_stored_in_a_later_state(state: str) -> None:
    with pytest.raises(Conflict, match=f"stored as {state}"):
        initial(State(state))


def test_terminal_states_have_no_way_out_but_the_manual_retry() -> None:
    assert {state.value for state in TERMINAL} == {"completed", "cancelled", "discarded"}
    ways_out = [as_row(t) for t in TRANSITIONS if t.source in TERMINAL]
    assert ways_out == [("discarded", "retry", "available")]


def test_active_is_entered_by_fetch_from_available_alone() -> None:
    assert [as_row(t) for t in TRANSITIONS if t.target is State.ACTIVE] == [
        ("available", "fetch", "active")
    ]


def test_the_depth_of_a_queue_counts_what_waits_for_a_worker_or_a_time() -> None:
    assert {state.value for state in WAITING} == {"available", "scheduled", "retryable"}


def test_a_row_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        TRANSITIONS[0].target = State.ACTIVE  # type: ignore[misc]  # this is what must fail
