"""Cron jobs as their clients register them, and a clock that tests can turn."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.cron.models import CronJob
from django_ojs.extensions.cron.operations import Definition
from django_ojs.extensions.cron.operations.tick import last_query
from django_ojs.extensions.events.models import Event

SECOND = timedelta(seconds=1)


def each_hour() -> str:
    """Return an expression that is due each hour, and next in half an hour.

    With @hourly the occurrence of the full hour would come in the way of tests that run then.
    """
    return f"{(datetime.now(UTC) + timedelta(minutes=30)).minute} * * * *"


def definition(name: str = "report", expression: Any = ..., **values: Any) -> Definition:
    """Build a definition, of `each_hour` by default; `template` is completed with a type."""
    expression = each_hour() if expression is ... else expression
    template = {"type": "report.make", "args": [1]} | values.pop("template", {})
    return Definition(name=name, expression=expression, template=template, **values)


def register(name: str = "report", expression: Any = ..., **values: Any) -> CronJob:
    """Register a cron job, of `each_hour` by default."""
    return cron.register(definition(name, expression, **values))[0]


def make_due(*names: str, ago: timedelta = SECOND) -> datetime:
    """Let cron jobs be due since then; return the time."""
    at = (datetime.now(UTC) - ago).replace(microsecond=0)
    changed = CronJob.primary.filter(pk__in=names).update(due_at=at, next_run_at=at)
    assert changed == len(names)
    # As if so much time had passed since the last query of this process.
    last_query.reset()
    return at


def tick(*names: str, ago: timedelta = SECOND) -> int:
    """Let cron jobs be due, and run the scheduler once."""
    make_due(*names, ago=ago)
    return cron.fire_due()


def events(*types: str) -> list[Event]:
    """Return the recorded events of cron jobs, oldest first."""
    found = Event.primary.filter(type__startswith="cron.").order_by("pk")
    return list(found.filter(type__in=types) if types else found)


def reasons() -> list[str]:
    """Return why occurrences were skipped, in order."""
    return [event.data["reason"] for event in events("cron.skipped")]
