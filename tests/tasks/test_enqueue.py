"""Enqueue through django.tasks: a job in the caller's transaction, with its arguments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.utils import timezone

import django_ojs as ojs
from django_ojs.models import Job
from django_ojs.spec.errors import InvalidArgs
from tests.middleware.test_enqueue import chain
from tests.tasks.names import (
    InvalidTask,
    TaskDiscarded,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    task_backends,
)
from tests.tasks.work import job_of, work

pytestmark = pytest.mark.django_db


def test_a_task_commits_and_rolls_back_with_the_caller(tasks: ModuleType) -> None:
    with transaction.atomic():
        kept = tasks.add.enqueue(1)
    with transaction.atomic():
        tasks.add.enqueue(2)
        transaction.set_rollback(True)

    (job,) = Job.objects.all()
    assert (str(job.pk), job.type) == (kept.id, "tests.tasks.tasks.add")
    assert (job.queue, job.priority, job.state, job.args) == ("default", 0, "available", [1])


def test_the_result_of_an_enqueue_is_what_get_result_finds(tasks: ModuleType) -> None:
    given = tasks.describe.enqueue("ada", 1, tone="dry", more=[2])
    found = tasks.describe.get_result(given.id)

    assert given == found
    assert (found.status, found.attempts, found.errors) == (TaskResultStatus.READY, 0, [])
    assert found.task == tasks.describe
    assert found.enqueued_at == job_of(given).created_at
    assert (found.args, found.kwargs) == (["ada", 1], {"tone": "dry", "more": [2]})
    assert not found.is_finished
    with pytest.raises(ValueError, match="not finished"):
        assert found.return_value


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "stored"),
    [
        ("add", [1], {}, [1]),
        ("add", [], {"b": 2, "a": 1}, [1, 2]),
        ("add", [1], {"b": 2}, [1, 2]),
        ("describe", ["ada"], {}, ["ada", {}]),
        ("describe", [], {"name": "ada"}, ["ada", {}]),
        (
            "describe",
            ["ada", 1, 2],
            {"x": 1, "tone": "dry"},
            ["ada", 1, 2, {"tone": "dry", "x": 1}],
        ),
        ("attempt", ["hi"], {}, ["hi"]),
        ("attempt", [], {"text": "hi"}, ["hi"]),
    ],
)
def test_keyword_arguments_bind_by_signature_and_come_back_as_given(
    tasks: ModuleType, name: str, args: list[Any], kwargs: dict[str, Any], stored: list[Any]
) -> None:
    result = getattr(tasks, name).enqueue(*args, **kwargs)
    assert job_of(result).args == stored
    result.refresh()
    found = getattr(tasks, name).get_result(result.id)
    assert (found.args, found.kwargs) == (args, kwargs)


def test_keyword_arguments_reach_the_function(tasks: ModuleType) -> None:
    result = tasks.describe.enqueue("ada", 1, tone="dry", more=2)
    work()
    result.refresh()
    assert result.return_value == ["ada", [1], "dry", {"more": 2}]


def test_arguments_that_do_not_fit_are_the_callers_error(tasks: ModuleType) -> None:
    with pytest.raises(InvalidArgs, match="missing a required argument: 'a'"):
        tasks.add.enqueue()
    with pytest.raises(InvalidArgs, match="missing a required argument: 'name'"):
        tasks.describe.enqueue(tone="dry")
    with pytest.raises(TypeError, match="Unsupported type"):
        tasks.add.enqueue(object())
    assert not Job.objects.exists()


def test_arguments_are_normalized_as_django_does(tasks: ModuleType) -> None:
    result = tasks.add.enqueue((1, 2), b=b"text")
    assert (result.args, result.kwargs) == ([[1, 2]], {"b": "text"})
    assert job_of(result).args == [[1, 2], "text"]


def test_a_time_is_kept_to_the_microsecond(tasks: ModuleType) -> None:
    moment = datetime(2040, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    result = tasks.add.using(run_after=moment).enqueue(1)
    job = job_of(result)
    assert (job.state, job.due_at) == ("scheduled", moment)
    assert tasks.add.get_result(result.id).task.run_after == moment
    assert result.status == TaskResultStatus.READY


def test_a_task_that_is_due_later_is_not_run_now(tasks: ModuleType) -> None:
    tasks.add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1)
    past = tasks.add.using(run_after=timezone.now() - timedelta(hours=1)).enqueue(2)
    assert work() == 1
    assert job_of(past).state == "completed"


def test_the_larger_priority_runs_first(tasks: ModuleType) -> None:
    low, high = (tasks.add.using(priority=each).enqueue(1) for each in (-100, 100))
    assert [job_of(low).priority, job_of(high).priority] == [-100, 100]
    high_job, low_job = Job.objects.order_by("-priority")
    work()
    high_job.refresh_from_db()
    low_job.refresh_from_db()
    assert high_job.started_at is not None
    with pytest.raises(InvalidTask):
        tasks.add.using(priority=101)


def test_the_async_methods_do_the_same(tasks: ModuleType) -> None:
    result = async_to_sync(tasks.add.aenqueue)(1, b=2)
    work()
    async_to_sync(result.arefresh)()
    found = async_to_sync(tasks.add.aget_result)(result.id)
    assert (found.status, found.return_value) == (TaskResultStatus.SUCCESSFUL, 3)
    assert result.return_value == 3


def test_every_feature_of_a_backend_is_supported(tasks: ModuleType) -> None:
    backend = task_backends["default"]
    names = ("defer", "async_task", "get_result", "priority")
    assert all(getattr(backend, f"supports_{name}") for name in names)


def test_each_backend_has_its_queues_and_all_share_the_jobs(tasks: ModuleType) -> None:
    own = tasks.elsewhere.enqueue()
    moved = tasks.add.using(backend="second", queue_name="slow").enqueue(1)

    assert (own.backend, moved.backend) == ("second", "second")
    for result in (own, moved):
        for alias in ("default", "second"):
            found = task_backends[alias].get_result(result.id)
            assert (found.backend, found.task.backend) == ("second", "second")
    with pytest.raises(InvalidTask):
        tasks.add.using(queue_name="slow")
    assert work("worker-a", "default", "slow") == 2
    moved.refresh()
    assert moved.return_value == 11


def test_a_result_that_is_not_there(tasks: ModuleType) -> None:
    backend = task_backends["default"]
    other = ojs.enqueue("testapp.add", [1])
    for result_id in (str(ojs.new_id()), "123", "", str(other.id)):
        with pytest.raises(TaskResultDoesNotExist):
            backend.get_result(result_id)
    with pytest.raises(TaskResultMismatch):
        tasks.describe.get_result(tasks.add.enqueue(1).id)


def test_the_type_of_a_job_imports_nothing(
    tasks: ModuleType, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hostile_tasks.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    job = ojs.enqueue("hostile_tasks.steal", [1])
    with pytest.raises(TaskResultDoesNotExist, match=r"no task of this process"):
        task_backends["default"].get_result(str(job.id))


def test_a_stored_task_is_read_although_the_settings_have_changed(
    tasks: ModuleType, settings: Any
) -> None:
    result = tasks.describe.enqueue("ada")
    settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": ["default"]}}
    assert task_backends["default"].get_result(result.id).task.queue_name == "email"
    work()
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL


def test_a_job_of_another_client_has_positional_arguments(tasks: ModuleType) -> None:
    jobs = [
        ojs.enqueue("tests.tasks.tasks.describe", ["ada", {"tone": "dry"}], queue="email"),
        ojs.enqueue("tests.tasks.tasks.add", [1, 2], meta={"django_task": {"keywords": ["x"]}}),
        ojs.enqueue("tests.tasks.tasks.add", [1, 2], meta={"django_task": "x"}),
    ]
    found = [task_backends["default"].get_result(str(job.id)) for job in jobs]
    assert [(each.args, each.kwargs) for each in found] == [
        (["ada"], {"tone": "dry"}),
        ([1, 2], {}),
        ([1, 2], {}),
    ]


def test_a_task_that_a_middleware_dropped_has_failed(tasks: ModuleType) -> None:
    with chain(lambda envelope, proceed: None):
        result = tasks.add.enqueue(1)
    assert result.status == TaskResultStatus.FAILED
    assert result.errors[0].exception_class is TaskDiscarded
    assert not Job.objects.exists()
