"""The states of a worker: every way there is from one to another, and no other (§2.3)."""

from __future__ import annotations

from datetime import timedelta

from django_ojs.models.worker import Directive
from django_ojs.worker.lifecycle import Lifecycle
from tests.cases import together

RUNNING, QUIET, TERMINATE = Directive.RUNNING, Directive.QUIET, Directive.TERMINATE


class Life:
    def __init__(self, grace: float = 60.0) -> None:
        self.changes = 0
        self.cycle = Lifecycle(timedelta(seconds=grace), self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def signals(self, *wanted: Directive) -> Directive:
        for directive in wanted:
            self.cycle.on_signal(directive)
        return self.cycle.state

    def beats(self, *directives: Directive) -> Directive:
        for directive in directives:
            self.cycle.on_directive(directive)
        return self.cycle.state


@together("way", ["signals", "beats"])
@together(
    ("wanted", "state"),
    [
        ([], RUNNING),
        ([RUNNING], RUNNING),
        ([QUIET], QUIET),
        ([QUIET, QUIET], QUIET),
        ([QUIET, RUNNING], RUNNING),
        ([TERMINATE], TERMINATE),
        ([QUIET, TERMINATE], TERMINATE),
        # §2.3: not backward from terminate.
        ([TERMINATE, RUNNING], TERMINATE),
        ([TERMINATE, QUIET], TERMINATE),
        ([QUIET, TERMINATE, RUNNING], TERMINATE),
    ],
)
def test_the_state_after(way: str, wanted: list[Directive], state: Directive) -> None:
    assert getattr(Life(), way)(*wanted) is state


def test_a_worker_made_quiet_by_a_signal_is_not_resumed_by_a_beat_but_by_a_signal() -> None:
    life = Life()
    life.signals(QUIET)
    assert life.beats(RUNNING, RUNNING) is QUIET
    assert life.signals(RUNNING) is RUNNING


def test_a_worker_that_a_beat_keeps_quiet_may_be_resumed_by_a_beat() -> None:
    life = Life()
    life.signals(QUIET, RUNNING)
    assert life.beats(QUIET) is QUIET
    assert life.beats(RUNNING) is RUNNING


def test_terminate_starts_the_grace_period_and_nothing_else_does() -> None:
    life = Life(grace=60)
    assert (life.cycle.expired, life.cycle.remaining) == (False, float("inf"))
    life.signals(QUIET)
    assert life.cycle.remaining == float("inf")
    life.signals(TERMINATE)
    assert not life.cycle.expired
    assert 50 < life.cycle.remaining <= 60


def test_no_grace_is_over_at_once() -> None:
    life = Life(grace=0)
    life.signals(TERMINATE)
    assert (life.cycle.expired, life.cycle.remaining) == (True, 0)


def test_a_second_terminate_signal_ends_the_grace_period() -> None:
    life = Life()
    life.signals(TERMINATE, TERMINATE)
    assert life.cycle.expired


def test_beats_that_go_on_saying_terminate_leave_the_grace_period_alone() -> None:
    life = Life()
    life.beats(TERMINATE, TERMINATE, TERMINATE)
    assert not life.cycle.expired


def test_a_first_signal_after_a_directive_to_terminate_leaves_the_grace_period() -> None:
    # Its supervisor sends one when a sibling with the same directive has ended first.
    life = Life()
    life.beats(TERMINATE)
    life.signals(TERMINATE)
    assert not life.cycle.expired
    life.signals(TERMINATE)
    assert life.cycle.expired


def test_each_change_is_reported_once() -> None:
    life = Life()
    life.signals(QUIET, QUIET, RUNNING)
    assert life.changes == 2
    life.signals(TERMINATE, RUNNING, TERMINATE)
    assert life.changes == 4
