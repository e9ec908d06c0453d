"""How tasks are declared: `@options` over `@task`, and what is rejected with its cure."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

import django_ojs as ojs
from django_ojs.models import Job
from django_ojs.spec.errors import InvalidRequest, InvalidRetryPolicy, UniqueKeyInvalid
from tests.tasks.names import InvalidTask, OJSTask, TaskResultStatus, options, task, task_backends
from tests.tasks.work import job_of, work
from tests.testapp.models import Thing

pytestmark = pytest.mark.django_db


def plain(order: int, note: str = "") -> None: ...


def test_the_options_of_a_task_are_those_of_its_jobs(tasks: ModuleType) -> None:
    job = job_of(tasks.book.enqueue(1))
    assert (job.queue, job.timeout_ms, job.max_attempts) == ("email", 30_000, 2)
    by_type = ojs.enqueue("tests.tasks.tasks.book", [2, {}]).job()
    assert (by_type.queue, by_type.timeout_ms, by_type.max_attempts) == ("email", 30_000, 2)


def test_a_duplicate_is_the_task_that_is_there(tasks: ModuleType) -> None:
    first = tasks.book.enqueue(1)
    second = tasks.book.enqueue(order=1, note="again")
    assert (second.id, second.args, second.kwargs) == (first.id, [1], {})
    assert tasks.book.enqueue(2).id != first.id


def test_an_atomic_task_is_atomic(tasks: ModuleType) -> None:
    from django_ojs.handler_registry import registry

    assert registry.handlers["tests.tasks.tasks.book"].atomic
    assert not registry.handlers["tests.tasks.tasks.add"].atomic
    result = tasks.book.enqueue(1)
    work()
    result.refresh()
    assert result.return_value == Thing.objects.get().pk


def test_using_takes_options_for_one_call(tasks: ModuleType) -> None:
    job_id = ojs.new_id()
    once = tasks.book.using(id=job_id, timeout=60, queue_name="default", priority=3)
    job = job_of(once.enqueue(1))
    assert (job.pk, job.timeout_ms, job.max_attempts) == (job_id, 60_000, 2)
    assert (job.queue, job.priority) == ("default", 3)
    assert job_of(tasks.book.enqueue(2)).timeout_ms == 30_000
    again = tasks.add.using(meta={"tenant": 7}).using(timeout=5)
    job = job_of(again.enqueue(1, b=2))
    assert (job.timeout_ms, job.meta["tenant"]) == (5_000, 7)


def test_a_task_has_one_type_and_one_handler(tasks: ModuleType) -> None:
    assert job_of(tasks.sendReceipt.enqueue()).type == "tests.tasks.tasks.send-receipt"
    taken = ojs.job(f"{__name__}.plain")(lambda: None)
    try:
        with pytest.raises(ImproperlyConfigured, match="has two handlers"):
            task(plain)
    finally:
        from django_ojs.handler_registry import registry

        registry.remove(taken.type)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"queue": "email"}, InvalidRequest, "@task\\(queue_name=...\\)"),
        ({"priority": 1}, InvalidRequest, "@task\\(priority=...\\)"),
        ({"scheduled_at": "+PT1M"}, InvalidRequest, "using\\(run_after=...\\)"),
        ({"id": "1"}, InvalidRequest, "must be set for each job"),
        ({"timout": 1}, InvalidRequest, "not an option of a job"),
        ({"retry": {"max_attempts": -1}}, InvalidRetryPolicy, "max_attempts"),
        ({"unique": ojs.UniquePolicy(args_keys=["ordre"])}, UniqueKeyInvalid, "ordre"),
    ],
)
def test_an_option_that_is_wrong_is_rejected_at_the_declaration(
    tasks: ModuleType, given: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        options(**given)(task(plain))


def test_options_stand_above_task(tasks: ModuleType) -> None:
    with pytest.raises(TypeError, match="above @task"):
        options(timeout=1)(plain)  # type: ignore[arg-type]  # that is the mistake


def test_options_leave_a_task_of_another_backend_alone(tasks: ModuleType, settings: Any) -> None:
    path = task_backends["default"].__class__.__mro__[1].__module__.rpartition(".")[0]
    settings.TASKS = {
        "default": {"BACKEND": f"{path}.immediate.ImmediateBackend"},
        "ojs": settings.TASKS["default"],
    }
    other = task(plain)
    assert options(timeout=1)(other) is other
    assert not isinstance(other, OJSTask)
    assert other.enqueue(1).status == TaskResultStatus.SUCCESSFUL
    assert not Job.objects.exists()
    with pytest.raises(InvalidTask, match=r"write @task\(backend='ojs'\)"):
        other.using(backend="ojs")


def test_a_package_that_imports_the_backport_on_django_6(tasks: ModuleType) -> None:
    backport = pytest.importorskip("django_tasks")
    from django_ojs.handler_registry import registry

    try:
        theirs = backport.task()(plain)
        result = theirs.enqueue(1)
        work()
        result.refresh()
    finally:
        registry.remove(f"{__name__}.plain")
    assert isinstance(theirs, OJSTask)
    assert result.status == TaskResultStatus.SUCCESSFUL


@pytest.mark.parametrize("queue", ["email_low", "Email", "_email_low"])
def test_the_name_of_a_queue_is_rejected_with_its_cure(
    tasks: ModuleType, settings: Any, queue: str
) -> None:
    cure = queue.lower().strip("_").replace("_", "-")
    settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": ["default", queue]}}
    with pytest.raises(InvalidTask, match=f"Name it '{cure}'"):
        task(queue_name=queue)(plain)
    (problem,) = task_backends["default"].check()
    assert problem.id == "django_ojs.E007"
    assert f"Name it '{cure}'" in problem.msg
    assert f"OPTIONS['queues'] = {{'{queue}': '{cure}'}}" in problem.msg


def test_the_queue_of_a_package_has_another_name_here(tasks: ModuleType, settings: Any) -> None:
    from django_ojs.handler_registry import registry

    settings.TASKS = {
        "default": {
            **settings.TASKS["default"],
            "QUEUES": ["default", "low_priority"],
            "OPTIONS": {"queues": {"low_priority": "low-priority"}},
        }
    }
    assert task_backends["default"].check() == []
    try:
        result = task(queue_name="low_priority")(plain).enqueue(1)
        assert job_of(result).queue == "low-priority"
        assert task_backends["default"].get_result(result.id) == result
        assert registry.handlers[f"{__name__}.plain"].defaults.queue == "low-priority"
    finally:
        registry.remove(f"{__name__}.plain")


def test_an_option_of_the_backend_that_is_unknown_is_found_by_the_check(
    tasks: ModuleType, settings: Any
) -> None:
    assert task_backends["default"].check() == []
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": {"module": []}}}
    (problem,) = task_backends["default"].check()
    assert (
        problem.msg
        == "TASKS['default']['OPTIONS'] has no 'module'; it may have 'modules' and 'queues'."
    )


def test_any_queue_where_the_backend_names_none(tasks: ModuleType, settings: Any) -> None:
    settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": []}}
    moved = tasks.add.using(queue_name="anything")
    assert job_of(moved.enqueue(1)).queue == "anything"
