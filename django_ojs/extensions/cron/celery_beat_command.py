"""`cron import-celery-beat`: register the periodic tasks of django_celery_beat as cron jobs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from django.utils import timezone

from django_ojs.command_line.console import NONE, Console
from django_ojs.command_line.lists import ListColumn, column, write_list
from django_ojs.command_line.subcommand import OK, Options, usage_error
from django_ojs.extensions.cron import celery_beat
from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.cron.celery_beat import BeatTables, Row
from django_ojs.extensions.cron.models import OverlapPolicy
from django_ojs.extensions.cron.operations import Definition
from django_ojs.extensions.cron.operations.schedule import describe
from django_ojs.extensions.cron.spec import is_either_enough
from django_ojs.formatting import grouped
from django_ojs.job_type import job_type_of
from django_ojs.spec import json
from django_ojs.spec.errors import NotFound, OJSError
from django_ojs.spec.suggestions import allowed_name

#: The number and the unit of `@every` for each kind of period.
_PERIODS: Final = {"days": (24, "h"), "hours": (1, "h"), "minutes": (1, "m"), "seconds": (1, "s")}
_NO_EQUIVALENT: Final = {
    "solar": "its schedule follows the sun",
    "clocked": "it runs once, at a set time: enqueue a job with scheduled_at",
}
#: The columns of a task that only brokers use.
_OF_BROKERS: Final = ("exchange", "routing_key", "headers", "priority")


class _Rejected(Exception):
    """A periodic task has no equivalent; the text is the reason."""


@dataclass(slots=True)
class _Result:
    """A periodic task, and the cron job that it becomes; `reason` says why there is none."""

    task: str
    definition: Definition | None = None
    reason: str = ""
    left_out: list[str] = field(default_factory=list)
    #: Names that differ here, by their names in Celery.
    renamed: dict[str, str] = field(default_factory=dict)


def run(console: Console, options: Options) -> int:
    """Show what the periodic tasks become; with --write, register those cron jobs."""
    if options["names"]:
        raise usage_error("`import-celery-beat` imports all periodic tasks: leave the names out.")
    tables = celery_beat.read()
    if tables is None:
        raise usage_error("The default database has no tables of django_celery_beat.")
    results = [_convert(row, tables) for row in tables.tasks]
    taken: set[str] = set()
    for result in results:
        _check(result, taken)
    if options["write"]:
        for result in results:
            if result.definition is not None:
                cron.register(result.definition)
    _report(console, results, written=options["write"])
    return OK


def _convert(row: Row, tables: BeatTables) -> _Result:
    result = _Result(str(row["name"]))
    try:
        expression, zone = _schedule(row, tables)
        if row.get("one_off"):
            raise _Rejected("it runs once: enqueue a job with scheduled_at")
        if _is_in_the_future(row.get("start_time")):
            raise _Rejected("it starts at a set time: register it then")
        if row.get("expires"):
            raise _Rejected("it ends at a set time")
        if _json(row, "kwargs", {}):
            raise _Rejected("it has keyword arguments: declare it in code, with @ojs.cron")
        result.left_out = [name for name in _OF_BROKERS if row.get(name) not in (None, "", "{}")]
        # Tasks and queues get the names that they have in django_ojs.contrib.celery.
        task = str(row["task"])
        template: dict[str, Any] = {"type": job_type_of(task), "args": _json(row, "args", [])}
        opts: dict[str, Any] = {}
        if row.get("queue"):
            opts["queue"] = allowed_name(row["queue"])
        names = {task: template["type"], str(row.get("queue")): opts.get("queue")}
        result.renamed = {old: new for old, new in names.items() if new not in (None, old)}
        if row.get("expire_seconds"):
            opts["expires_at"] = f"+PT{row['expire_seconds']}S"
        if opts:
            template["options"] = opts
        result.definition = Definition(
            name=allowed_name(result.task),
            expression=expression,
            timezone=zone,
            template=template,
            # In Celery two runs may overlap as well.
            overlap_policy=OverlapPolicy.ALLOW.value,
            enabled=bool(row["enabled"]),
            description=row.get("description") or None,
        )
    except _Rejected as error:
        result.reason = str(error)
    return result


def _schedule(row: Row, tables: BeatTables) -> tuple[str, str]:
    """Return the expression and the timezone of a periodic task."""
    for kind, reason in _NO_EQUIVALENT.items():
        if row.get(f"{kind}_id"):
            raise _Rejected(str(reason))
    if interval := tables.schedules["interval"].get(row["interval_id"]):
        if interval["period"] not in _PERIODS:
            period = interval["period"]
            raise _Rejected(f"its interval is in {period}")
        number, unit = _PERIODS[interval["period"]]
        return f"@every {interval['every'] * number}{unit}", "UTC"
    found = tables.schedules["crontab"].get(row["crontab_id"])
    if found is None:
        raise _Rejected("it has no schedule")
    fields = [
        "".join(str(found[name]).split())
        for name in ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
    ]
    if is_either_enough(fields[2], fields[4]):
        raise _Rejected(
            "it runs on days that both the day of the month and the day of the "
            "week match; in a cron expression, one of them is enough"
        )
    return " ".join(fields), str(found.get("timezone") or "UTC")


def _is_in_the_future(moment: datetime | None) -> bool:
    # SQLite has no timezones: Django stores UTC there.
    return moment is not None and moment.replace(tzinfo=moment.tzinfo or UTC) > timezone.now()


def _json(row: Row, name: str, default: Any) -> Any:
    try:
        return json.loads(row.get(name) or json.dumps(default))
    except OJSError:
        raise _Rejected(f"its {name} are not JSON") from None


def _check(result: _Result, taken: set[str]) -> None:
    """Reject what cannot be registered, or would change an existing cron job."""
    definition = result.definition
    if definition is None:
        return
    try:
        cron.check(definition)
        if definition.name in taken:
            result.reason = f"another periodic task becomes {definition.name} as well"
        else:
            cron.get(definition.name)
            result.reason = f"there is a cron job {definition.name}"
    except NotFound:
        taken.add(definition.name)
    except OJSError as error:
        result.reason = error.message.removesuffix(".")
    if result.reason:
        result.definition = None


def _report(console: Console, results: list[_Result], *, written: bool) -> None:
    imported = [each for each in results if each.definition is not None]
    none = "There are no periodic tasks."
    if not write_list(console, "periodic_tasks", _COLUMNS, results, none=none, written=written):
        return
    text = (
        f"{grouped(len(imported))} of {grouped(len(results))} periodic tasks are imported."
        if written
        else f"{grouped(len(imported))} of {grouped(len(results))} periodic tasks can be imported."
    )
    console.line(text)
    if not written:
        console.note("Nothing was changed. Import them with --write.")
    elif imported:
        console.note("Runs may overlap, as in Celery. Stop Celery's beat before a worker starts.")


def _of_definition(name: str) -> Callable[[_Result], Any]:
    return lambda result: getattr(result.definition, name, None)


def _type(result: _Result) -> str | None:
    return None if result.definition is None else str(result.definition.template["type"])


def _schedule_in_words(result: _Result) -> str:
    found = result.definition
    return NONE if found is None else describe(found.expression, found.timezone)


_COLUMNS: Final[list[ListColumn[_Result]]] = [
    column("periodic_task", path="task"),
    ListColumn(name="name", value=_of_definition("name")),
    ListColumn(name="cron", value=_of_definition("expression"), words=_schedule_in_words),
    ListColumn(name="timezone", value=_of_definition("timezone"), only="json"),
    ListColumn(name="type", value=_type, only="json"),
    ListColumn(name="enabled", value=_of_definition("enabled"), only="json"),
    column(
        "renamed",
        words=lambda result: ", ".join(f"{old} → {new}" for old, new in result.renamed.items()),
    ),
    column("left_out"),
    ListColumn(name="error", value=lambda result: result.reason or None),
]
