"""`django_ojs.testing` with tasks."""

from __future__ import annotations

from types import ModuleType

import pytest

from django_ojs import testing

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("mode", ["real", "fake"])
def test_a_task_stands_where_a_handler_does(tasks: ModuleType, mode: str) -> None:
    with {"real": testing.real, "fake": testing.fake}[mode]() as ojs:
        tasks.describe.enqueue("Ada", tone="curt")
        found = ojs.assert_enqueued(tasks.describe, queue="email")
        ojs.refute_enqueued(tasks.add)
        assert found == ojs.enqueued(tasks.describe)
        ojs.fail_next(tasks.describe, TimeoutError("No answer."))
        ojs.drain(with_retries=True)
        [job] = ojs.assert_completed(tasks.describe)
        assert job.spent == 2
        assert job.result == ["Ada", [], "curt", {}]


@pytest.mark.parametrize("mode", ["real", "fake"])
def test_perform_runs_a_task(tasks: ModuleType, mode: str) -> None:
    with {"real": testing.real, "fake": testing.fake}[mode]() as ojs:
        assert ojs.perform(tasks.add, 1, b=2) == 3
        assert ojs.perform(tasks.shout, "hi") == "HI 1"
        assert ojs.enqueued() == []


def test_perform_names_what_it_needs(tasks: ModuleType) -> None:
    with testing.fake() as ojs, pytest.raises(TypeError, match=r"a task of OJSBackend"):
        ojs.perform(tasks.add.func, 1)
