"""The schedules of Celery beat as cron jobs, and modules that import `celery`."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from django_ojs.contrib.celery import app as celery_app
from django_ojs.contrib.celery import beat
from django_ojs.contrib.celery.exceptions import NoEquivalent
from django_ojs.contrib.celery.schedules import crontab
from django_ojs.extensions.cron import schedules
from django_ojs.extensions.cron.models import CronJob
from django_ojs.models import Job
from tests.cases import together
from tests.operations.cron.scenes import tick

ROOT = Path(__file__).resolve().parents[3]


@together(
    ("schedule", "expression"),
    [
        (crontab(), "* * * * *"),
        (crontab(minute=0, hour="*/3"), "0 */3 * * *"),
        (crontab(hour=[8, 20], minute=30, day_of_week="mon-fri"), "30 8,20 * * mon-fri"),
        (crontab(0, 0, day_of_month="1, 15", month_of_year={6, 1}), "0 0 1,15 1,6 *"),
        (crontab(minute="*/15", day_of_week="Monday, thu"), "*/15 * * * mon,thu"),
        (crontab.from_string("0 2 1 * *"), "0 2 1 * *"),
        (timedelta(minutes=5), "@every 300s"),
        (30.0, "@every 30s"),
        (timedelta(days=14), "@every 1209600s"),
        (950_401.5, "@every 950401.5s"),
    ],
)
def test_a_schedule_is_a_cron_expression(schedule: object, expression: str) -> None:
    assert beat.expression_of(schedule, "name") == expression


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (crontab(day_of_month=1, day_of_week="mon"), "in another way"),
        ("sunset", "is a str"),
    ],
)
def test_a_schedule_without_an_equivalent(schedule: object, said: str) -> None:
    with pytest.raises(NoEquivalent, match=said):
        beat.expression_of(schedule, "name")


@pytest.mark.django_db
def test_the_beat_schedule_fires(shop: ModuleType, settings: Any) -> None:
    settings.CELERY_TIMEZONE = "Europe/Paris"
    settings.CELERY_BEAT_SCHEDULE = {
        "Nightly total": {
            "task": "tests.contrib.celery.tasks.add",
            "schedule": crontab(hour=7, minute=30),
            "args": (1,),
            "kwargs": {"b": 2},
            "options": {"queue": "Night_Work", "expires": 600},
        },
    }

    def set_up(sender: Any, **kwargs: Any) -> None:
        sender.add_periodic_task(60.0, shop.counter.s(5), name="count")
        sender.add_periodic_task(crontab(), shop.work.s().set(priority=4))

    shop.app.on_after_configure.connect(set_up)
    celery_app.configured()
    beat.declare_all()
    schedules.sync()
    stored = {row.name: row for row in CronJob.objects.all()}
    assert sorted(stored) == ["count", "nightly-total", "tests.contrib.celery.tasks.work"]
    nightly = stored["nightly-total"]
    assert (nightly.expression, nightly.timezone, nightly.overlap_policy) == (
        "30 7 * * *",
        "Europe/Paris",
        "allow",
    )
    tick("nightly-total")
    job = Job.objects.get()
    assert (job.type, job.args, job.queue) == (
        "tests.contrib.celery.tasks.add",
        [1, 2],
        "night-work",
    )
    assert job.expires_at is not None


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"task": "shop.tasks.gone", "schedule": 30}, "no module tasks.py"),
        ({"task": "shop.counter", "schedule": 30, "when": 1}, "'when'"),
        ({"task": "shop.counter", "schedule": crontab(hour="22-3"), "args": [1]}, "22-23,0-3"),
    ],
)
def test_an_entry_that_cannot_be_declared_is_named(
    shop: ModuleType, entry: dict[str, Any], said: str
) -> None:
    with pytest.raises(NoEquivalent, match=rf"beat_schedule\['nightly'\].*{said}"):
        beat.declare("nightly", entry)


def test_two_entries_of_the_same_name_are_named(shop: ModuleType, settings: Any) -> None:
    entry = {"task": "shop.counter", "schedule": 30, "args": [1]}
    settings.CELERY_BEAT_SCHEDULE = {"Daily_Mail": entry, "daily mail": entry}
    with pytest.raises(NoEquivalent, match=r"'Daily_Mail' and 'daily mail'.*'daily-mail'"):
        beat.declare_all()


UNCHANGED = """
from django.conf import settings
from django_ojs.contrib.celery import install_as_celery
install_as_celery()
from importlib.util import find_spec
assert find_spec("celery") is not None
import celery, celery.app, celery.utils.log
from celery import Celery, current_app, shared_task, states, uuid
from celery.app.task import Task
from celery.exceptions import MaxRetriesExceededError
from celery.schedules import crontab
from celery.signals import task_postrun
from celery.states import SUCCESS
from celery.utils.log import get_task_logger
settings.configure(
    INSTALLED_APPS=["django_ojs", "django_ojs.contrib.celery"], OJS={}, CELERY_IMPORTS=["colorsys"]
)
app = Celery("proj", include=["tabnanny"])
app.autodiscover_tasks(["wsgiref"], related_name="headers")
@shared_task
def add(a, b): return a + b
import django
django.setup()
import sys
assert {"colorsys", "tabnanny", "wsgiref.headers"} <= sys.modules.keys()
from celery.result import AsyncResult
from django_ojs.contrib.celery import result
assert AsyncResult is result.AsyncResult
assert current_app.tasks["__main__.add"] is add and add.s().apply_async and uuid() != uuid()
assert add(1, 2) == 3 and isinstance(add, Task)
from django_ojs.handlers import get_handler
assert get_handler("__main__.add") is None and get_handler(add.handler.type) is add.handler
try:
    import celery.bootsteps
except ModuleNotFoundError as error:
    print(error)
"""


def test_a_module_that_imports_celery_runs_unchanged() -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNCHANGED], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "celery.bootsteps has no equivalent in django_ojs.contrib.celery.\n"


def test_celery_that_is_imported_already_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    from django_ojs.contrib.celery import install_as_celery

    before = list(sys.meta_path)
    monkeypatch.setitem(sys.modules, "celery", ModuleType("celery"))
    with pytest.raises(NoEquivalent, match=r"__init__\.py beside the settings"):
        install_as_celery()
    assert sys.meta_path == before


def test_our_own_tasks_can_be_discovered_without_django_tasks() -> None:
    """Celery imports `tasks` of every installed app, on Django 5.2 also `django_ojs.tasks`."""
    script = "import sys, django_ojs.tasks; print('django_ojs.tasks.compat' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout == "False\n"
