"""Cron jobs as their clients register them, and a clock that tests can turn."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from factory import Factory, LazyFunction, Trait

from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.cron.models import CronJob, CronOwner
from django_ojs.extensions.cron.operations import Definition
from django_ojs.extensions.cron.operations.tick import last_query
from django_ojs.extensions.events.models import Event

SECOND = timedelta(seconds=1)


def each_hour() -> str:
    """Return an expression that is due each hour, and next in half an hour.

    With @hourly the occurrence of the full hour would come in the way of tests that run then.
    """
    return f"{(datetime.now(UTC) + timedelta(minutes=30)).minute} * * * *"


class DefinitionFactory(Factory[Definition]):
    """A cron job as it is registered, `in_code` or by a client; `template` may lack the type."""

    class Meta:
        model = Definition

    class Params:
        in_code = Trait(owner=CronOwner.CODE, service="shop", defined_in="shop.jobs.nightly")

    name = "report"
    expression = LazyFunction(each_hour)

    @classmethod
    def _adjust_kwargs(cls, **values: Any) -> dict[str, Any]:
        template = {"type": "report.make", "args": [1]} | values.get("template", {})
        return values | {"template": template}


def register(name: str = "report", expression: Any = ..., **values: Any) -> CronJob:
    """Register a cron job, of `each_hour` by default."""
    if expression is not ...:
        values["expression"] = expression
    return cron.register(DefinitionFactory(name=name, **values))[0]


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
