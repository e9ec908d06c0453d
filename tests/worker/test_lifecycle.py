"""The states of a worker: every way there is from one to another, and no other (§2.3)."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest

from django_ojs.models.worker import Directive
from django_ojs.worker import lifecycle as lifecycles
from django_ojs.worker.lifecycle import Lifecycle, StopRequests
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


def test_terminate_signals_leave_the_grace_period_and_who_counts_them_ends_it() -> None:
    life = Life()
    life.signals(TERMINATE, TERMINATE)
    assert not life.cycle.expired
    life.cycle.stop_at_once()
    assert life.cycle.expired


@together(
    ("after", "is_second"),
    [([0.0], False), ([0.0, 0.0], False), ([0.0, 0.2, 0.7], False), ([0.0, 1.5], True)],
)
def test_signals_within_a_second_are_one_request(after: list[float], is_second: bool) -> None:
    times = iter([100.0 + each for each in after])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lifecycles, "time", SimpleNamespace(monotonic=lambda: next(times)))
        requests = StopRequests()
        assert [requests.is_second() for _ in after][-1] is is_second


def test_beats_that_go_on_saying_terminate_leave_the_grace_period_alone() -> None:
    life = Life()
    life.beats(TERMINATE, TERMINATE, TERMINATE)
    assert not life.cycle.expired


def test_only_a_directive_alone_makes_a_stop_directed() -> None:
    life = Life()
    assert not life.cycle.is_directed
    life.beats(TERMINATE)
    assert life.cycle.is_directed
    life.signals(TERMINATE)
    assert (life.cycle.is_directed, life.cycle.expired) == (False, False)


def test_each_change_is_reported_once() -> None:
    life = Life()
    life.signals(QUIET, QUIET, RUNNING)
    assert life.changes == 2
    life.signals(TERMINATE, RUNNING, TERMINATE)
    assert life.changes == 3
