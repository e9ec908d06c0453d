"""One claim for a notification or a poll of all processes of a supervisor, and not one of each."""

from __future__ import annotations

import copy
import os
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError

from django_ojs.models.worker import Directive
from django_ojs.storage import database, notify
from django_ojs.storage.claim_floors import floors
from django_ojs.storage.dialects.postgresql import PostgreSQL
from django_ojs.worker import claimer, sibling_claims
from django_ojs.worker.process import WorkerProcess
from django_ojs.worker.sibling_claims import SiblingClaims
from tests.forks import fork
from tests.testapp import worker_jobs as handlers
from tests.worker.acceptance.ledger import ALIASES, becomes, stored
from tests.worker.test_claimer import returned
from tests.worker.test_process import working
from tests.worker.waiting import eventually

HOUR = 3600.0


def never() -> bool:
    return False


@pytest.fixture
def mine() -> SiblingClaims:
    return SiblingClaims()


@pytest.fixture
def theirs(mine: SiblingClaims) -> SiblingClaims:
    """The object as another process has it."""
    return copy.copy(mine)


def test_processes_share_it_after_a_fork(mine: SiblingClaims) -> None:
    os.waitpid(fork(lambda: mine.end(7.0, 11.0, left_none=True)), 0)
    assert mine.left_none_at == 7.0
    assert mine.has_answered(11.0)
    assert not mine.has_answered(11.1)


def test_a_claim_that_left_jobs_answers_nothing(mine: SiblingClaims) -> None:
    mine.end(7.0, 11.0, left_none=False)
    assert not mine.has_answered(11.0)
    assert mine.left_none_at < 0.0


def test_after_the_clock_was_set_back_a_claim_answers_what_came_before_it(
    mine: SiblingClaims,
) -> None:
    mine.end(7.0, 11.0, left_none=True)
    mine.end(8.0, 5.0, left_none=True)
    assert mine.has_answered(5.0)
    assert not mine.has_answered(6.0)


def test_the_claim_of_another_process_is_waited_for(
    mine: SiblingClaims, theirs: SiblingClaims, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sibling_claims, "LONGEST", HOUR)
    theirs.begin()
    looks: list[bool] = []

    def is_answered() -> bool:
        looks.append(mine.has_answered(11.0))
        return looks[-1]

    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(mine.must_claim(is_answered)))
    thread.start()
    eventually(lambda: len(looks) > 3, "it waits")
    theirs.end(7.0, 11.0, left_none=True)
    thread.join()
    assert answers == [False]


def test_a_process_that_was_frozen_in_its_claim_is_not_waited_for_long(
    mine: SiblingClaims, theirs: SiblingClaims
) -> None:
    theirs.begin()
    assert mine.must_claim(never)
    # Now it is this one that another waits for, also if it dies.
    assert mine.must_claim(never), "its own claim"
    assert theirs.must_claim(never)


def test_one_process_looks_for_isolated_jobs(mine: SiblingClaims, theirs: SiblingClaims) -> None:
    assert mine.may_look_for_isolated(HOUR)
    assert not theirs.may_look_for_isolated(HOUR)
    assert theirs.may_look_for_isolated(0.0)


@pytest.mark.django_db(transaction=True, databases=ALIASES)
class TestAProcess:
    """A worker process whose sibling is the test."""

    @pytest.fixture(autouse=True)
    def without_notifications(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(PostgreSQL, "listen", lambda *_: None)

    @pytest.fixture
    def claims(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        return returned("fetch", monkeypatch, len)

    @pytest.fixture
    def polls(self, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
        return returned("may_find", monkeypatch, bool)

    def test_does_not_claim_for_a_notification_that_was_answered(
        self, mine: SiblingClaims, theirs: SiblingClaims, claims: list[int]
    ) -> None:
        with working(mine, poll_interval=timedelta(hours=1)) as process:
            eventually(lambda: claims and _is_settled(process), "its first claim")
            theirs.end(time.monotonic(), 11.0, left_none=True)
            before = len(claims)
            process._on_notify(["default"], 11.0)
            process._on_notify(["default"], 10.5)
            job = stored(handlers.note.enqueue())
            assert len(claims) == before
            process._on_notify(["default"], 12.0)
            becomes(job, "completed")
            assert claims[before] == 1, "the first claim since found the job"
        assert theirs.has_answered(12.0), "a claim that found fewer jobs than it asked for"

    def test_that_has_no_room_leaves_the_notification_to_others(
        self, mine: SiblingClaims, theirs: SiblingClaims, claims: list[int]
    ) -> None:
        with working(mine, poll_interval=timedelta(hours=1), threads=1) as process:
            eventually(lambda: claims and _is_settled(process), "its first claim")
            job = stored(handlers.wait.enqueue())
            process._on_notify(["default"], 11.0)
            becomes(job, "active")
            assert not theirs.has_answered(11.0), "it may have left jobs"
            process._on_notify(["default"], 12.0)
            assert not mine._claims, "it does not have the others wait"
            assert not theirs.has_answered(12.0)

    def test_that_is_quiet_has_no_other_wait_for_it(self, mine: SiblingClaims) -> None:
        with working(mine, poll_interval=timedelta(hours=1)) as process:
            eventually(lambda: _is_settled(process), "it waits")
            process.on_signal(Directive.QUIET)
            process._on_notify(["default"], 11.0)
            assert not mine._claims

    def test_does_not_poll_when_another_has_polled(
        self, mine: SiblingClaims, theirs: SiblingClaims, claims: list[int], polls: list[bool]
    ) -> None:
        with working(mine) as process:
            eventually(lambda: polls, "it polls")
            # An hour from now: until then no process needs to poll.
            theirs.end(time.monotonic() + HOUR, 0.0, left_none=True)
            eventually(lambda: _waits(process), "the poll that was under way has ended")
            before = len(polls) + len(claims)
            waits = _counted_waits(process)
            eventually(lambda: len(waits) > 3, "it has woken up")
            assert len(polls) + len(claims) == before

    def test_asks_for_its_lost_claims_though_another_has_polled(
        self, mine: SiblingClaims, theirs: SiblingClaims, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failing = threading.Event()
        real = claimer.fetch

        def fetch(*args: Any, **kwargs: Any) -> Any:
            jobs = real(*args, **kwargs)
            if failing.is_set():
                failing.clear()
                raise OperationalError("the response was lost")
            return jobs

        monkeypatch.setattr(claimer, "fetch", fetch)
        with working(mine) as process:
            eventually(lambda: _waits(process), "its first claim")
            theirs.end(time.monotonic() + HOUR, 11.0, left_none=True)
            failing.set()
            job = stored(handlers.note.enqueue())
            process._on_notify(["default"], 12.0)
            becomes(job, "completed")

    def test_claims_for_a_notification_after_the_clock_was_set_back(
        self, mine: SiblingClaims, theirs: SiblingClaims, claims: list[int]
    ) -> None:
        with working(mine, poll_interval=timedelta(hours=1)) as process:
            eventually(lambda: claims and _is_settled(process), "its first claim")
            process._on_notify(["default"], HOUR)
            theirs.end(time.monotonic(), HOUR, left_none=True)
            job = stored(handlers.note.enqueue())
            process._on_notify(["default"], 12.0)
            becomes(job, "completed")

    @pytest.mark.parametrize("reason", ["a floor", "no room for a larger job"])
    def test_that_may_have_left_jobs_says_so(
        self,
        mine: SiblingClaims,
        claims: list[int],
        reason: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        of_claims_with_a_job: list[bool] = []
        real = mine.end

        def end(began_at: float, sent_at: float, *, left_none: bool) -> None:
            if claims and claims.pop():
                of_claims_with_a_job.append(left_none)
            claims.clear()
            real(began_at, sent_at, left_none=left_none)

        monkeypatch.setattr(mine, "end", end)
        with working(mine, poll_interval=timedelta(hours=1)) as process:
            eventually(lambda: _is_settled(process), "its first claim")
            if reason == "a floor":
                monkeypatch.setattr(type(floors), "in_use", True)
            else:
                monkeypatch.setattr(process._claimer, "_bytes_left", lambda: 9 * 1024 * 1024)
            job = stored(handlers.note.enqueue())
            process._on_notify(["default"], 11.0)
            becomes(job, "completed")
        assert of_claims_with_a_job == [False]

    def test_knows_only_of_queues_that_its_list_had(
        self, mine: SiblingClaims, theirs: SiblingClaims, claims: list[int]
    ) -> None:
        first = stored(handlers.note.enqueue())
        with working(mine, queues=("*",), poll_interval=timedelta(hours=1)) as process:
            becomes(first, "completed")
            eventually(lambda: _is_settled(process), "it waits")
            job = stored(handlers.note.enqueue())
            process._on_notify(["default"], 11.0)
            becomes(job, "completed")
            eventually(lambda: theirs.has_answered(11.0), "its claim has ended")
            assert theirs.left_none_at <= process._claimer._queues.read_at

    def test_polls_once_more_after_a_notification(
        self,
        mine: SiblingClaims,
        theirs: SiblingClaims,
        polls: list[bool],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(notify, "INTERVAL", 0.05)
        with working(mine, poll_interval=timedelta(hours=1)) as process:
            eventually(lambda: _is_settled(process), "it waits")
            process._on_notify(["default"], 11.0)
            # A job that its producer did not notify of, because it had notified just before.
            eventually(lambda: polls, "it polls")


def _waits(process: WorkerProcess) -> bool:
    return process._waiting


def _is_settled(process: WorkerProcess) -> bool:
    """Whether it waits for long: the listener has woken it when it connected, and it has polled."""
    if not process._waiting:
        return False  # It may not have a claimer yet.
    was_woken = process._claimer._notified_at > 0 or not database.dialect().can_notify
    return was_woken and process._claimer.longest_wait() > 1


def _counted_waits(process: WorkerProcess) -> list[int]:
    waits: list[int] = []
    real = process._wait

    def wait() -> None:
        waits.append(1)
        real()

    process._wait = wait  # type: ignore[method-assign]
    return waits
