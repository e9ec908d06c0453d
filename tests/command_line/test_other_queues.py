"""`manage.py ojs import-from`: what becomes of the waiting jobs of other queues.

The tables are those of django-background-tasks 1.2.8, django-tasks-db 0.13 and procrastinate 3.10,
as far as they are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

import django_ojs
from django_ojs.models import Job
from django_ojs.registry import registry
from tests.command_line.run import ojs
from tests.tasks.conftest import tasks

__all__ = ["tasks"]

pytestmark = [
    # On MariaDB a transaction ends with a statement that changes the schema.
    pytest.mark.django_db(transaction=connection.vendor == "mysql"),
    pytest.mark.usefixtures("tables_of_the_test"),
]

HERE = __name__


@pytest.fixture
def handlers(db: None) -> Iterator[None]:
    """Register handlers as a project does that has changed the decorators of its functions."""
    before = dict(registry.handlers)

    @django_ojs.job("email.notify", queue="email")
    def notify(user_id: int, template: str = "welcome") -> None: ...

    notify.function.__qualname__ = "notify"
    yield
    registry.handlers.clear()
    registry.handlers.update(before)


def execute(statement: str, *values: Any) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall() if cursor.description else None


@pytest.fixture
def background_tasks(handlers: None) -> None:
    when, repeat = _when(), connection.ops.quote_name("repeat")
    execute(
        "CREATE TABLE background_task (id bigint PRIMARY KEY, task_name varchar(190), "
        f"task_params text, priority integer DEFAULT 0, run_at {when}, {repeat} bigint DEFAULT 0, "
        f"queue varchar(190), failed_at {when}, locked_at {when})"
    )


def _when() -> str:
    kinds = {"postgresql": "timestamptz", "mysql": "datetime(6)", "sqlite": "datetime"}
    return kinds[connection.vendor]


def background_task(key: int, args: list[Any], **values: Any) -> None:
    name = values.pop("name", f"{HERE}.notify")
    kwargs = values.pop("kwargs", {})
    columns = {
        "id": key,
        "task_name": name,
        "task_params": json.dumps([args, kwargs]),
        "run_at": timezone.now() - timedelta(minutes=1),
        **values,
    }
    places = ", ".join(["%s"] * len(columns))
    names = ", ".join(map(connection.ops.quote_name, columns))
    execute(f"INSERT INTO background_task ({names}) VALUES ({places})", *columns.values())


def stored() -> list[tuple[Any, ...]]:
    return list(Job.objects.order_by("created_at").values_list("type", "args", "queue", "state"))


def remaining(table: str) -> list[Any]:
    return [row[0] for row in execute(f"SELECT id FROM {table} ORDER BY id")]


def test_without_its_tables_there_is_nothing_to_move() -> None:
    done = ojs("import-from", "django-background-tasks")
    assert (done.code, done.err) == (
        2,
        "The database of the jobs has no tables of django-background-tasks.\n",
    )


def test_without_write_nothing_is_moved(background_tasks: None) -> None:
    background_task(1, [7])
    done = ojs("import-from", "django-background-tasks")
    assert done.code == 0
    assert done.out.splitlines() == [
        f"{HERE}.notify: 1, as email.notify.",
        "1 of 1 waiting jobs can be moved.",
    ]
    assert "Move them with --write." in done.err
    assert (stored(), remaining("background_task")) == ([], [1])


def test_waiting_jobs_are_moved_with_their_priority_and_time(background_tasks: None) -> None:
    due = timezone.now() + timedelta(days=3)
    background_task(1, [7])
    background_task(2, [8], kwargs={"template": "bye"}, run_at=due, priority=5)
    done = ojs("import-from", "django-background-tasks", "--write")
    assert (done.code, done.out.splitlines()[-1]) == (0, "2 of 2 waiting jobs were moved.")
    assert stored() == [
        ("email.notify", [7], "email", "available"),
        ("email.notify", [8, "bye"], "email", "scheduled"),
    ]
    later = Job.objects.get(state="scheduled")
    assert later.priority == 5
    assert later.due_at is not None
    assert abs(later.due_at - due) < timedelta(milliseconds=1)
    assert remaining("background_task") == []


def test_more_than_a_batch_is_moved(background_tasks: None) -> None:
    for number in range(450):
        background_task(number, [number])
    assert ojs("import-from", "django-background-tasks", "--write").code == 0
    assert [args for _, args, _, _ in stored()] == [[number] for number in range(450)]


def test_running_and_failed_jobs_stay(background_tasks: None) -> None:
    background_task(1, [7], locked_at=timezone.now())
    background_task(2, [8], failed_at=timezone.now())
    done = ojs("import-from", "django-background-tasks", "--write")
    assert (done.code, done.out) == (0, "0 of 0 waiting jobs were moved.\n")
    assert (stored(), remaining("background_task")) == ([], [1, 2])


def test_a_job_that_cannot_be_moved_stays_and_is_named_with_the_reason(
    background_tasks: None,
) -> None:
    background_task(1, [7])
    background_task(2, [], name="shop.unknown")
    background_task(3, [1, 2, 3])
    background_task(4, [8], repeat=3600)
    background_task(5, [9])
    background_task(6, [10], task_params="[[NaN], {}]")
    background_task(7, [11], task_params="[11]")
    for write in ([], ["--write"]):
        done = ojs("import-from", "django-background-tasks", *write)
        assert done.code == 1
        assert (
            "shop.unknown: 1 not moved: no handler has this function; name its type: --type "
            in (done.out)
        )
        assert "it repeats: declare it with @ojs.cron." in done.out
        assert "too many positional arguments" in done.out
        assert "NaN" in done.out
        assert "1 not moved: its arguments have an unknown form." in done.out
    assert "2 of 7 waiting jobs were moved." in done.out
    assert remaining("background_task") == [2, 3, 4, 6, 7]


def test_a_function_of_another_name_is_given_its_type(background_tasks: None) -> None:
    background_task(1, [7], name="old.tasks.tell")
    background_task(2, [7], name="old.tasks.other")
    done = ojs(
        *("import-from", "django-background-tasks", "--write"),
        *("--type", "old.tasks.tell=email.notify", "--type", "old.tasks.other=email.unknown"),
    )
    assert "old.tasks.other: 1 not moved: no handler has the type email.unknown." in done.out
    assert stored() == [("email.notify", [7], "email", "available")]


def test_a_pair_without_a_type_is_rejected(background_tasks: None) -> None:
    done = ojs("import-from", "django-background-tasks", "--type", "email.notify")
    assert "must be FUNCTION=TYPE" in done.err


def test_the_result_as_json(background_tasks: None) -> None:
    background_task(1, [7])
    background_task(2, [], name="shop.unknown")
    shown = ojs("import-from", "django-background-tasks", "--json").json
    assert shown["written"] is False
    assert shown["functions"][f"{HERE}.notify"] == {"types": {"email.notify": 1}, "rejected": {}}
    assert list(shown["functions"]["shop.unknown"]["types"]) == []


@pytest.mark.postgresql
def test_procrastinate(handlers: None) -> None:
    execute(
        "CREATE TABLE procrastinate_jobs (id bigserial PRIMARY KEY, queue_name varchar(128), "
        "task_name varchar(128), priority integer DEFAULT 0, args jsonb, status varchar(10) "
        "DEFAULT 'todo', scheduled_at timestamptz)"
    )
    for status, user in (("todo", 7), ("doing", 8), ("todo", 9), ("succeeded", 10)):
        execute(
            "INSERT INTO procrastinate_jobs (queue_name, task_name, args, status) "
            "VALUES ('email', %s, %s, %s)",
            f"{HERE}.notify",
            json.dumps({"user_id": user}),
            status,
        )
    assert ojs("import-from", "procrastinate", "--write").code == 0
    assert [args for _, args, _, _ in stored()] == [[7], [9]]
    assert [row[0] for row in execute("SELECT status FROM procrastinate_jobs ORDER BY id")] == [
        *("cancelled", "doing", "cancelled", "succeeded")
    ]


def test_tasks_of_django_tasks_db(tasks: ModuleType) -> None:
    table = "django_tasks_database_dbtaskresult"
    kind = "jsonb" if connection.vendor == "postgresql" else "text"
    execute(
        f"CREATE TABLE {table} (id varchar(36) PRIMARY KEY, status varchar(10), "
        f"args_kwargs {kind}, priority integer, task_path text, queue_name varchar(32), "
        f"run_after {_when()})"
    )
    soon = timezone.now() + timedelta(hours=1)
    # The package stores this where a task has no `run_after`.
    never = datetime(9999, 1, 1, tzinfo=UTC)
    rows = [
        ("1", "READY", "add", {"args": [1], "kwargs": {"b": 2}}, never),
        ("2", "READY", "add", {"args": [3, 4], "kwargs": {}}, soon),
        ("3", "SUCCESSFUL", "add", {"args": [5, 6], "kwargs": {}}, never),
        ("4", "READY", "nothing", {"args": [], "kwargs": {}}, never),
        ("5", "READY", "HANDLERS", {"args": [], "kwargs": {}}, never),
    ]
    for key, status, name, given, after in rows:
        execute(
            f"INSERT INTO {table} VALUES (%s, %s, %s, 5, %s, 'email', %s)",
            *(key, status, json.dumps(given), f"tests.tasks.tasks.{name}", after),
        )
    for write in ([], ["--write"]):
        done = ojs("import-from", "django-tasks-db", *write)
        assert done.code == 1
        assert "tests.tasks.tasks.nothing: 1 not moved: it cannot be imported." in done.out
        assert "TASKS names another backend for it" in done.out
    assert [(args, queue, state) for _, args, queue, state in stored()] == [
        ([1, 2], "email", "available"),
        ([3, 4], "email", "scheduled"),
    ]
    assert remaining(table) == ["3", "4", "5"]
