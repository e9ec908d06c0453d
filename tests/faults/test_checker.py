"""The checker finds what it is there to find."""

from __future__ import annotations

import pytest

from tests.faults.checker import Fault, Start, Verdict, check

FIRST = Start(job="a", attempt=1, run=1, pid=10, at=1.0)
SECOND = Start(job="a", attempt=2, run=2, pid=11, at=3.0)


def judged(*starts: Start, faults: tuple[Fault, ...] = ()) -> Verdict:
    return check(
        attempted={"a"},
        acknowledged={"a"},
        starts=starts,
        done={"a"} if starts else (),
        faults=faults,
    )


def test_a_job_that_ran_once_is_good() -> None:
    verdict = judged(FIRST)
    verdict.good()
    assert verdict.line == (
        "attempted 1 acknowledged 1 executed 1 lost 0 unexpected 0 duplicated 0 explained 0"
    )


def test_an_acknowledged_job_that_never_ran_is_lost() -> None:
    verdict = judged()
    assert verdict.lost == {"a"}
    with pytest.raises(AssertionError, match="lost 1"):
        verdict.good()


def test_a_job_that_began_and_never_came_to_its_end_is_lost() -> None:
    verdict = check(attempted={"a"}, acknowledged={"a"}, starts=[FIRST], done=())
    assert verdict.lost == {"a"}


def test_a_job_whose_enqueue_was_cut_off_may_have_run_or_not() -> None:
    for starts, done in (((), ()), ((FIRST,), ("a",))):
        check(attempted={"a"}, acknowledged=(), starts=starts, done=done).good()


def test_a_job_that_was_not_enqueued_is_unexpected() -> None:
    verdict = check(attempted=(), acknowledged=(), starts=[FIRST], done=())
    assert verdict.unexpected == {"a"}
    with pytest.raises(AssertionError, match="unexpected 1"):
        verdict.good()


def test_a_job_that_was_rolled_back_and_ran_is_unexpected() -> None:
    verdict = check(attempted={"a"}, acknowledged=(), rolled_back={"a"}, starts=[FIRST], done={"a"})
    assert verdict.unexpected == {"a"}


def test_a_second_run_without_a_reason_is_unexplained() -> None:
    verdict = judged(SECOND, FIRST)
    assert verdict.duplicated == 1
    assert verdict.unexplained == ((FIRST, SECOND),)
    with pytest.raises(AssertionError, match="explained 0"):
        verdict.good()


@pytest.mark.parametrize(
    "fault",
    [
        Fault(kind="kill", pid=10, began=2.0, ended=2.1),
        Fault(kind="kill", pid=10, began=0.9, ended=1.0),
        Fault(kind="restart", began=2.0, ended=2.5),
        Fault(kind="lapse", job="a", run=1),
    ],
)
def test_a_fault_that_hit_the_first_run_explains_the_second(fault: Fault) -> None:
    verdict = judged(FIRST, SECOND, faults=(fault,))
    verdict.good()
    assert verdict.line.endswith("duplicated 1 explained 1")


@pytest.mark.parametrize(
    "fault",
    [
        Fault(kind="kill", pid=11, began=2.0, ended=2.1),  # Another process.
        Fault(kind="kill", pid=10, began=3.1, ended=3.2),  # Too late to be the reason.
        Fault(kind="kill", pid=10, began=0.1, ended=0.9),  # Before it began.
        Fault(kind="lapse", job="b", run=1),
        Fault(kind="lapse", job="a", run=2),
    ],
)
def test_a_fault_elsewhere_or_at_another_time_explains_nothing(fault: Fault) -> None:
    assert judged(FIRST, SECOND, faults=(fault,)).unexplained == ((FIRST, SECOND),)


@pytest.mark.parametrize(
    "second",
    [
        Start(job="a", attempt=1, run=2, pid=11, at=3.0),
        Start(job="a", attempt=2, run=1, pid=11, at=3.0),
    ],
)
def test_no_fault_excuses_a_later_run_that_is_not_ahead_in_run_and_attempt(second: Start) -> None:
    verdict = judged(FIRST, second, faults=(Fault(kind="everything"),))
    assert len(verdict.unexplained) == 1


def test_each_further_run_needs_a_reason_of_its_own() -> None:
    third = Start(job="a", attempt=3, run=3, pid=12, at=5.0)
    kill = Fault(kind="kill", pid=10, began=2.0, ended=2.1)
    verdict = judged(FIRST, SECOND, third, faults=(kill,))
    assert verdict.duplicated == 2
    assert verdict.unexplained == ((SECOND, third),)
