"""The schedules of Celery beat, as cron jobs that the code declares."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from django_ojs.contrib.celery import call_options, registration
from django_ojs.contrib.celery.configuration import configuration
from django_ojs.contrib.celery.exceptions import NoEquivalent
from django_ojs.contrib.celery.schedules import crontab
from django_ojs.contrib.celery.values import encode
from django_ojs.not_installed import check_module
from django_ojs.spec.errors import OJSError
from django_ojs.spec.suggestions import allowed_name

_MEMBERS: Final = frozenset({"task", "schedule", "args", "kwargs", "options", "relative"})


def declare_all() -> None:
    """Declare the entries of `beat_schedule`. Raises NoEquivalent, which names the entry."""
    names: dict[str, str] = {}
    for name, entry in (configuration.beat_schedule or {}).items():
        same = names.setdefault(allowed_name(name), str(name))
        if same != name:
            raise NoEquivalent(
                f"beat_schedule has {same!r} and {name!r}, which are the same name of a cron job, "
                f"{allowed_name(same)!r}: rename one of them."
            )
        declare(str(name), entry)


def declare(name: str, entry: Mapping[str, Any]) -> None:
    """Declare one entry. As in Celery, its task is enqueued even while an earlier run goes on."""
    unknown = sorted(entry.keys() - _MEMBERS)
    if unknown:
        raise NoEquivalent(f"beat_schedule[{name!r}] has {unknown[0]!r}, which is not known.")
    task = registration.tasks.get(entry["task"])
    if task is None:
        raise NoEquivalent(
            f"beat_schedule[{name!r}] names the task {entry['task']!r}, which no module tasks.py "
            "of an installed app declares."
        )
    check_module("django_ojs.extensions.cron.schedules", "cron")
    from django_ojs.extensions.cron.schedules import cron

    try:
        declaration = cron(
            expression_of(entry["schedule"], name),
            name=allowed_name(name),
            timezone=str(configuration.timezone or "UTC"),
            args=encode(entry.get("args") or ()),
            kwargs=encode(dict(entry.get("kwargs") or {})),
            overlap_policy="allow",
            **call_options.read(entry.get("options") or {}),
        )
        declaration(task.handler)
    except OJSError as error:
        raise NoEquivalent(f"beat_schedule[{name!r}]: {error}") from None


def expression_of(schedule: object, name: str) -> str:
    """Return a schedule of Celery as a cron expression. Raises NoEquivalent."""
    if isinstance(schedule, crontab):
        if schedule.restricts_both_days:
            # In Celery a day has to match both fields, in cron only one of them.
            raise NoEquivalent(
                f"beat_schedule[{name!r}] has day_of_month and day_of_week, which cron combines "
                "in another way. Restrict one of them, and check the other in the task."
            )
        return schedule.expression
    if isinstance(schedule, int | float):
        schedule = timedelta(seconds=schedule)
    if isinstance(schedule, timedelta):
        seconds = f"{schedule.total_seconds():.6f}".rstrip("0").rstrip(".")
        return f"@every {seconds}s"
    raise NoEquivalent(
        f"beat_schedule[{name!r}] is a {type(schedule).__name__}: a schedule is a crontab, a "
        "timedelta or a number of seconds."
    )
