"""Tasks with a schedule: `@ojs.cron` above `@task`."""

from __future__ import annotations

from types import ModuleType

import pytest
from django.core.exceptions import ImproperlyConfigured

import django_ojs as ojs
from django_ojs.extensions.cron import schedules
from django_ojs.handler_registry import registry
from tests.factories import jobs
from tests.operations.cron.scenes import tick

pytestmark = pytest.mark.django_db


def test_a_task_has_a_schedule_too(tasks: ModuleType) -> None:
    task = ojs.cron("@daily", args=["x", 1], kwargs={"tone": "calm"})(tasks.describe)
    assert task is tasks.describe
    schedules.sync()
    tick("tests.tasks.tasks.describe")
    job = jobs().get()
    assert (job.type, job.queue, job.priority) == ("tests.tasks.tasks.describe", "email", 5)
    assert job.args == ["x", 1, {"tone": "calm"}]


def test_a_task_of_another_backend_is_left_as_it_is(tasks: ModuleType) -> None:
    class Other:
        module_path = "elsewhere.task"

    other = Other()
    assert ojs.cron("@daily")(other) is other
    assert schedules.declared() == []


def test_a_task_without_a_handler_is_an_error_at_the_sync(tasks: ModuleType) -> None:
    ojs.cron("@daily")(tasks.add)
    registry.remove("tests.tasks.tasks.add")
    with pytest.raises(ImproperlyConfigured, match="has no handler"):
        schedules.sync()
