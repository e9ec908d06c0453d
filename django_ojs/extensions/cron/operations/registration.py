"""Register, enable, disable and remove cron jobs (ojs-cron §8).

An operator can disable and enable a cron job that code owns; everything else about it changes with
the code.
"""

import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import IntegrityError

from django_ojs.conf import settings
from django_ojs.extensions.cron.models import CronJob, CronOwner, OverlapPolicy
from django_ojs.extensions.cron.operations import schedule
from django_ojs.extensions.cron.operations.queries import lock
from django_ojs.extensions.cron.spec import CronExpressionError, check_timezone
from django_ojs.operations.access import operator
from django_ojs.spec import envelope
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.errors import Conflict, InvalidCronExpression, InvalidRequest
from django_ojs.storage import database

logger = logging.getLogger("django_ojs.cron")

MAX_NAME: Final = 255
MAX_DESCRIPTION: Final = 10_000

#: Other spellings of the overlap policies.
SYNONYMS: Final = {
    "cancel": OverlapPolicy.CANCEL_PREVIOUS,
    "replace": OverlapPolicy.CANCEL_PREVIOUS,
    "queue": OverlapPolicy.ENQUEUE,
}

A_DAY: Final = timedelta(days=1)
A_SECOND: Final = timedelta(seconds=1)

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9\-.]*", re.ASCII).fullmatch


@dataclass(frozen=True, kw_only=True, slots=True)
class Definition:
    """A cron job as its client asks for it (ojs-cron §2.2).

    `template` is a job in the form of a PUSH: `type`, `args` (none by default), `meta`,
    `options`. With `enabled` None, a new cron job is enabled, and an existing one stays as it is.
    """

    name: str
    expression: str
    template: Mapping[str, Any]
    timezone: str = "UTC"
    overlap_policy: str = OverlapPolicy.SKIP.value
    enabled: bool | None = None
    description: str | None = None
    owner: CronOwner = CronOwner.API
    service: str = ""
    defined_in: str = field(default="", compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """A definition that may be stored: its columns, and an envelope of its jobs."""

    values: dict[str, Any]
    envelope: Envelope


def check(definition: Definition) -> Checked:
    """Check a definition. Raises InvalidRequest and its subclasses, which name the field."""
    if not isinstance(definition.name, str) or not _NAME(definition.name):
        raise InvalidRequest.of(
            "name", "must consist of a-z, 0-9, - and dots, beginning with a letter or a digit."
        )
    if len(definition.name) > MAX_NAME:
        raise InvalidRequest.of("name", f"must be at most {MAX_NAME} characters long.")
    if definition.enabled is not None and not isinstance(definition.enabled, bool):
        raise InvalidRequest.of("enabled", "must be a boolean.")
    _check_schedule(definition.expression, definition.timezone)
    template = {"args": [], **definition.template}
    wanted = _envelope(template)
    values = {
        "expression": definition.expression.strip(),
        "timezone": definition.timezone,
        "template": {name: template[name] for name in sorted(template)},
        "type": wanted.type,
        "queue": wanted.queue,
        "overlap_policy": _overlap_policy(definition.overlap_policy),
        "description": _description(definition.description),
        "owner": definition.owner,
        "service": definition.service,
        "defined_in": definition.defined_in,
    }
    return Checked(values=values, envelope=wanted)


def register(definition: Definition) -> tuple[CronJob, bool]:
    """Store a cron job, or change the one of this name; return it, and whether it is new.

    Its next occurrence is computed anew when the expression, the timezone or `enabled` has changed,
    unless it is due already.
    Raises as `check` does, and Conflict where code owns the cron job and something else registers
    it.
    """
    return _register(definition, check(definition).values)


@database.write_transaction
def _register(definition: Definition, values: dict[str, Any]) -> tuple[CronJob, bool]:
    name = definition.name
    is_new = False
    if not CronJob.primary.filter(pk=name).exists():
        with suppress(IntegrityError), database.atomic():  # Another transaction may create it.
            CronJob.primary.create(name=name, **values)
            is_new = True
    job, now = lock(name)
    if not is_new and job.owner == CronOwner.CODE and definition.owner != CronOwner.CODE:
        raise _owned_by_code(job)
    enabled = definition.enabled
    if enabled is None:
        enabled = job.enabled
    is_moved = is_new or (job.expression, job.timezone, job.enabled) != (
        values["expression"],
        values["timezone"],
        enabled,
    )
    by_code = CronOwner.CODE == job.owner == definition.owner
    # `updated_at` is also set when a cron job is created.
    changed_at = job.updated_at - A_SECOND
    is_changed_again = not is_new and by_code and changed_at > max(job.created_at, now - A_DAY)
    before = {} if is_new else _shown(job)
    had = None if is_new else job.template
    for column, value in values.items():
        setattr(job, column, value)
    is_due = job.enabled and job.due_at is not None and job.due_at <= now
    job.enabled = enabled
    # An occurrence that is due already is not lost, however long no process has run.
    if is_moved and not (is_due and enabled):
        _set_times(job, now)
    _save(job, now)
    changes = operator.changed(before, _shown(job))
    # The audit trail shows that options, arguments or metadata of its jobs changed, but not their
    # values.
    replaced = sorted(operator.changed(had, job.template)) if had is not None else []
    if changes or replaced:
        operator.acted(
            "cron.created" if is_new else "cron.changed",
            name,
            object_type="cron_job",
            changes=changes,
            replaced=[each for each in replaced if each not in changes],
        )
    if is_moved and is_changed_again:
        logger.warning(
            "The schedule of the cron job %s was changed by code for the second time in a day. Is "
            "its expression random where it is imported? Then each start of a worker moves it: "
            "use a fixed one.",
            name,
        )
    if is_moved and (warning := warning_of(job.expression)) is not None:
        logger.warning("The cron job %s: %s", name, warning)
    return job, is_new


def warning_of(expression: str) -> str | None:
    """Return what the author of a valid expression may not expect, if there is something."""
    return schedule.parse_expression(expression).warning


def _shown(job: CronJob) -> dict[str, Any]:
    """Return what the audit trail shows of a cron job."""
    names = ("expression", "timezone", "type", "queue", "overlap_policy", "description", "enabled")
    return {name: getattr(job, name) for name in names}


@database.write_transaction
def set_enabled(name: str, enabled: bool) -> CronJob:
    """Enable or disable a cron job, even one that code owns, and return it. Raises NotFound.

    Enabling an enabled one changes nothing.
    """
    job, now = lock(name)
    if job.enabled is not enabled:
        job.enabled = enabled
        _set_times(job, now)
        _save(job, now)
        action = "cron.resumed" if enabled else "cron.paused"
        changes = {"enabled": (not enabled, enabled)}
        operator.acted(action, name, object_type="cron_job", changes=changes)
    return job


def remove(name: str, *, owner: CronOwner = CronOwner.API) -> None:
    """Delete a cron job; the jobs that it has created stay.

    Raises NotFound, and Conflict where code owns it and `owner` is not code.
    """
    _remove(name, owner)


@database.write_transaction
def _remove(name: str, owner: CronOwner) -> None:
    job, _ = lock(name)
    if job.owner == CronOwner.CODE and owner != CronOwner.CODE:
        raise _owned_by_code(job)
    job.delete(using=database.alias())
    changes = operator.changed(_shown(job), {})
    operator.acted("cron.removed", name, object_type="cron_job", changes=changes)


@database.write_transaction
def leave_code(name: str, *, service: str) -> None:
    """Delete a cron job that the code of a project no longer declares.

    A disabled one stays, and operators own it: if the next deployment declares it again, the code
    takes it over, without enabling it. Raises NotFound.
    """
    job, now = lock(name)
    if (job.owner, job.service) != (CronOwner.CODE, service):
        return  # Another process was faster.
    if job.enabled:
        _remove(name, CronOwner.CODE)
        return
    job.owner, job.service, job.defined_in = CronOwner.API, "", ""
    _save(job, now)


def _set_times(job: CronJob, now: datetime) -> None:
    times = schedule.first(job.expression, job.timezone, now) if job.enabled else schedule.NEVER
    job.due_at, job.next_run_at = times.due_at, times.next_run_at


def _save(job: CronJob, now: datetime) -> None:
    job.updated_at = now
    job.save(using=database.alias())


def _owned_by_code(job: CronJob) -> Conflict:
    return Conflict(
        f"The cron job {job.name} is declared in code ({job.defined_in}).",
        details={"name": job.name, "owner": job.owner},
        hint="Change it there. It can be disabled and enabled here.",
    )


def _check_schedule(expression: object, timezone: object) -> None:
    for name, value in (("cron", expression), ("timezone", timezone)):
        if not isinstance(value, str):
            raise InvalidRequest.of(name, "must be a string.")
    try:
        check_timezone(str(timezone))
    except CronExpressionError as error:
        raise InvalidRequest.of("timezone", f"is invalid: {error.message}") from None
    try:
        schedule.parse_expression(str(expression))
    except CronExpressionError as error:
        raise InvalidCronExpression.of(
            "cron", f"is invalid: {error}", expression_field=error.field
        ) from None


def _envelope(template: Mapping[str, Any]) -> Envelope:
    """Check a template as a PUSH is checked, and return the envelope of its jobs."""
    values = settings()
    wanted = envelope.parse(template, default_retry=values.default_retry, limits=values.limits)
    for name in ("scheduled_at", "expires_at"):
        if isinstance(getattr(wanted, name), datetime):
            raise InvalidRequest.of(
                f"options.{name}", "must be relative, such as +PT5M: each job has its own time."
            )
    if wanted.pending:
        raise InvalidRequest.of("options.pending", "cannot be set for the jobs of a cron job.")
    envelope.validate(wanted, values.limits)
    return wanted


def _overlap_policy(given: object) -> OverlapPolicy:
    if isinstance(given, str):
        if given in OverlapPolicy.values:
            return OverlapPolicy(given)
        if given in SYNONYMS:
            return SYNONYMS[given]
    raise InvalidRequest.of(
        "overlap_policy",
        f"must be one of {', '.join([*OverlapPolicy.values, *SYNONYMS])}.",
    )


def _description(given: object) -> str | None:
    if given is None:
        return None
    if not isinstance(given, str) or len(given) > MAX_DESCRIPTION or "\0" in given:
        raise InvalidRequest.of(
            "description",
            f"must be a string of at most {MAX_DESCRIPTION} characters.",
        )
    return given
