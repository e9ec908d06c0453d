"""`django_ojs.testing` with tasks."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from django_ojs import testing
from django_ojs.spec.failure import ResultRejected
from django_ojs.testing import Drained
from tests.receivers import receiving
from tests.tasks.names import TaskResultStatus, task_enqueued


@pytest.mark.django_db
def test_a_task_stands_where_a_handler_does(tasks: ModuleType) -> None:
    with testing.real() as ojs:
        tasks.describe.enqueue("Ada", tone="curt")
        found = ojs.assert_enqueued(tasks.describe, queue="email")
        ojs.refute_enqueued(tasks.add)
        assert found == ojs.enqueued(tasks.describe)
        ojs.fail_next(tasks.describe, TimeoutError("No answer."))
        ojs.drain(with_retries=True)
        [job] = ojs.assert_completed(tasks.describe)
        assert job.spent == 2
        assert job.result == ["Ada", [], "curt", {}]


@pytest.mark.django_db
@pytest.mark.parametrize("mode", ["real", "fake"])
def test_perform_runs_a_task(tasks: ModuleType, mode: str) -> None:
    with {"real": testing.real, "fake": testing.fake}[mode]() as ojs:
        assert ojs.perform(tasks.add, 1, b=2) == 3
        assert ojs.perform(tasks.shout, "hi") == "HI 1"
        assert ojs.enqueued() == []


def test_perform_names_what_it_needs(tasks: ModuleType) -> None:
    with testing.fake() as ojs, pytest.raises(TypeError, match=r"a task of OJSBackend"):
        ojs.perform(tasks.add.func, 1)


def test_the_fake_mode_needs_no_database(tasks: ModuleType) -> None:
    results = []

    def receive(*, task_result: Any, **kwargs: Any) -> None:
        results.append(task_result)

    with receiving(receive, task_enqueued), testing.fake() as ojs:
        result = tasks.attempt.enqueue("hi")
        assert [each.id for each in results] == [result.id]
        ojs.assert_enqueued(tasks.attempt, args=["hi"])
        result.refresh()
        assert (result.status, result.attempts) == (TaskResultStatus.READY, 0)
        assert result.errors == []


@pytest.mark.django_db
def test_an_inline_task_has_run_when_its_enqueue_returns(tasks: ModuleType) -> None:
    with testing.inline():
        result = tasks.add.enqueue(1)
        assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 11)


@pytest.mark.django_db
def test_drain_keeps_the_class_of_an_exception(tasks: ModuleType) -> None:
    with testing.real() as ojs:
        result = tasks.fail.enqueue("no")
        ojs.drain(max_jobs=1)
        result.refresh()
        assert [each.exception_class for each in result.errors] == [ValueError]


def test_keywords_of_a_task_are_expected_by_name(tasks: ModuleType) -> None:
    with testing.fake() as ojs:
        tasks.book.enqueue(7)
        ojs.assert_enqueued(tasks.book, args=[7])
        ojs.assert_enqueued(tasks.book, args=[7, {}])
        ojs.assert_enqueued(tasks.book, kwargs={"order": 7, "note": ""})
        ojs.refute_enqueued(tasks.book, args=[])
        tasks.describe.enqueue("ada", 1, tone="dry", more=2)
        ojs.assert_enqueued(tasks.describe, args=["ada", 1], kwargs={"tone": "dry", "more": 2})
        ojs.refute_enqueued(tasks.describe, args=["ada", 1])
        ojs.refute_enqueued(tasks.describe, kwargs={"other": 2})
        with pytest.raises(AssertionError, match=r"tone: expected 'curt', got 'dry'"):
            ojs.assert_enqueued(tasks.describe, kwargs={"name": "ada", "tone": "curt"})
        with pytest.raises(TypeError, match=r"book has no parameter not"):
            ojs.assert_enqueued(tasks.book, kwargs={"not": ""})


@pytest.mark.django_db
def test_a_task_whose_result_is_not_json_has_its_effects_once(tasks: ModuleType) -> None:
    with testing.real() as ojs:
        result = tasks.give.enqueue("object")
        assert ojs.drain(with_retries=True) == Drained(discarded=1)
        result.refresh()
        assert [each.exception_class for each in result.errors] == [ResultRejected]
