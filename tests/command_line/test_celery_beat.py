"""`manage.py ojs cron import-celery-beat`: what becomes of the periodic tasks."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection, models

from django_ojs.extensions.cron.models import CronJob
from tests.command_line.run import ojs
from tests.operations.cron.scenes import register

pytestmark = [
    # On MariaDB a transaction ends with a statement that changes the schema.
    pytest.mark.django_db(transaction=connection.vendor == "mysql"),
    pytest.mark.usefixtures("tables_of_the_test"),
]


def _model(table: str, **fields: models.Field[Any, Any]) -> type[models.Model]:
    """Build a model with the table of django_celery_beat 2.8, outside of the app registry."""
    from django.apps.registry import Apps

    meta = type(
        "Meta",
        (),
        {
            "app_label": "django_celery_beat",
            "apps": Apps(),
            "db_table": f"django_celery_beat_{table}",
        },
    )
    return type(table, (models.Model,), {**fields, "Meta": meta, "__module__": __name__})


Interval: Any = _model(
    "intervalschedule",
    every=models.IntegerField(),
    period=models.CharField(max_length=24),
)
Crontab: Any = _model(
    "crontabschedule",
    **{
        name: models.CharField(max_length=240, default="*")
        for name in ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
    },
    timezone=models.CharField(max_length=63, default="UTC"),
)
Task: Any = _model(
    "periodictask",
    name=models.CharField(max_length=200, unique=True),
    task=models.CharField(max_length=200),
    **{
        f"{kind}_id": models.IntegerField(null=True)
        for kind in ("interval", "crontab", "solar", "clocked")
    },
    args=models.TextField(default="[]"),
    kwargs=models.TextField(default="{}"),
    queue=models.CharField(max_length=200, null=True),
    exchange=models.CharField(max_length=200, null=True),
    routing_key=models.CharField(max_length=200, null=True),
    headers=models.TextField(default="{}"),
    priority=models.PositiveIntegerField(null=True),
    expires=models.DateTimeField(null=True),
    expire_seconds=models.PositiveIntegerField(null=True),
    one_off=models.BooleanField(default=False),
    start_time=models.DateTimeField(null=True),
    enabled=models.BooleanField(default=True),
    last_run_at=models.DateTimeField(null=True),
    description=models.TextField(default=""),
)


@pytest.fixture
def tables(db: None) -> None:
    """Create the tables for the transaction of the test."""
    # Without the editor's own block, which SQLite rejects inside of a transaction.
    editor: Any = connection.schema_editor()
    editor.deferred_sql = []
    with connection.cursor() as cursor:
        for model in (Interval, Crontab, Task):
            cursor.execute(*editor.table_sql(model))


def crontab(name: str, *fields: str, timezone: str = "UTC", **values: Any) -> None:
    names = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
    row = Crontab.objects.create(**dict(zip(names, fields, strict=True)), timezone=timezone)
    Task.objects.create(name=name, task="shop.report", crontab_id=row.pk, **values)


def interval(name: str, every: int, period: str, **values: Any) -> None:
    row = Interval.objects.create(every=every, period=period)
    Task.objects.create(name=name, task="shop.report", interval_id=row.pk, **values)


def test_without_its_tables_there_is_nothing_to_import() -> None:
    done = ojs("cron", "import-celery-beat")
    assert (done.code, done.err) == (
        2,
        "The default database has no tables of django_celery_beat.\n",
    )


def test_nothing_is_written_without_write(tables: None) -> None:
    interval("Every five", 5, "minutes")
    done = ojs("cron", "import-celery-beat")
    _head, row, last = done.out.splitlines()
    assert re.split("  +", row)[:3] == ["Every five", "every-five", "every 5 minutes (UTC)"]
    assert last == "1 of 1 periodic tasks can be imported."
    assert "--write" in done.err
    assert not CronJob.objects.exists()


@pytest.mark.both
def test_a_periodic_task_becomes_a_cron_job(tables: None) -> None:
    crontab(
        "Daily Report (EU)",
        *("0", "9", "*", "*", "mon-fri"),
        timezone="Europe/Paris",
        args='["all", 1]',
        queue="reports",
        expire_seconds=600,
        enabled=False,
        description="For the owners",
    )
    interval("hourly", 1, "hours")
    interval("weekly", 7, "days", start_time="2020-01-01T00:00:00Z")
    interval("carts", 10, "minutes", queue="Low_Priority")
    Task.objects.filter(name="carts").update(task="shop.tasks.cleanCarts")

    done = ojs("cron", "import-celery-beat", "--write")
    assert done.code == 0

    # The names that `django_ojs.contrib.celery` gives the task and its queue.
    renamed = "shop.tasks.cleanCarts → shop.tasks.clean-carts, Low_Priority → low-priority"
    assert renamed in next(row for row in done.out.splitlines() if row.startswith("carts "))
    assert CronJob.objects.get(pk="carts").template == {
        "type": "shop.tasks.clean-carts",
        "args": [],
        "options": {"queue": "low-priority"},
    }

    job = CronJob.objects.get(pk="daily-report-eu")
    assert (job.expression, job.timezone) == ("0 9 * * mon-fri", "Europe/Paris")
    assert job.template == {
        "type": "shop.report",
        "args": ["all", 1],
        "options": {"queue": "reports", "expires_at": "+PT600S"},
    }
    assert (job.enabled, job.overlap_policy, job.owner) == (False, "allow", "api")
    assert job.description == "For the owners"
    assert CronJob.objects.get(pk="hourly").expression == "@every 1h"
    assert CronJob.objects.get(pk="weekly").expression == "@every 168h"


def test_what_has_no_equivalent_is_reported_and_not_imported(tables: None) -> None:
    Task.objects.create(name="sunrise", task="shop.report", solar_id=1)
    Task.objects.create(name="clocked", task="shop.report", clocked_id=1)
    Task.objects.create(name="empty", task="shop.report")
    interval("micro", 5, "microseconds")
    interval("once", 5, "minutes", one_off=True)
    interval("later", 5, "minutes", start_time="2030-01-01T00:00:00Z")
    interval("ends", 5, "minutes", expires="2030-01-01T00:00:00Z")
    interval("named", 5, "minutes", kwargs='{"a": 1}')
    interval("broken", 5, "minutes", args="[")
    interval("queue", 5, "minutes", queue="!")
    crontab("both", "0", "0", "13", "*", "5")
    crontab("around", "0", "22-2", "*", "*", "*")

    done = ojs("cron", "import-celery-beat", "--write")

    rows = [re.split("  +", line) for line in done.out.splitlines()[1:-1]]
    reasons = {row[0]: row[-1] for row in rows}
    assert reasons["sunrise"] == "its schedule follows the sun"
    assert "scheduled_at" in reasons["clocked"]
    assert reasons["empty"] == "it has no schedule"
    assert reasons["micro"] == "its interval is in microseconds"
    assert "runs once" in reasons["once"]
    assert "starts at a set time" in reasons["later"]
    assert reasons["ends"] == "it ends at a set time"
    assert "keyword arguments" in reasons["named"]
    assert reasons["broken"] == "its args are not JSON"
    assert "queue" in reasons["queue"]
    assert "one of them is enough" in reasons["both"]
    assert "write 22-23,0-2" in reasons["around"]
    assert done.out.endswith("0 of 12 periodic tasks are imported.\n")
    assert not CronJob.objects.exists()


def test_what_belongs_to_the_broker_is_left_out_and_said(tables: None) -> None:
    interval("a", 5, "minutes", priority=3, routing_key="x")
    (shown,) = ojs("cron", "import-celery-beat", "--json").json["periodic_tasks"]
    assert shown["left_out"] == ["routing_key", "priority"]
    assert " routing_key, priority " in ojs("cron", "import-celery-beat").out


def test_a_cron_job_that_is_there_stays_as_it_is(tables: None) -> None:
    register("report", "@daily")
    interval("report", 5, "minutes")
    interval("two words", 5, "minutes")
    interval("two-words", 5, "minutes")

    done = ojs("cron", "import-celery-beat", "--write")

    assert "there is a cron job report" in done.out
    assert "another periodic task becomes two-words" in done.out
    assert CronJob.objects.get(pk="report").expression == "@daily"
    assert CronJob.objects.count() == 2
