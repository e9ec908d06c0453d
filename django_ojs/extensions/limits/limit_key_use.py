"""How much of its limits a key uses, for claims, for people and for the HTTP API."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from django.db.models import CharField, F, Func

from django_ojs import formatting
from django_ojs.claim_rules import Waits
from django_ojs.extensions.limits.claims_by_queue import Use
from django_ojs.extensions.limits.limit_statements import statements
from django_ojs.extensions.limits.models import LimitKey
from django_ojs.extensions.limits.rate_limit import RateLimit, Starts
from django_ojs.extensions.limits.rate_limit_policy import LIMITS, stored_key
from django_ojs.models import Job
from django_ojs.operations.jobs.redaction import redacted_key
from django_ojs.spec import json

#: The strategies that can hold the jobs of a key.
STRATEGIES: Final = ("concurrency", "rate", "throttle", "pause")

#: A rescheduled job is due at most this long after its key is expected to have room, because the
#: estimate is wrong if other jobs of the key are cancelled or its limits change.
RESCHEDULED_WITHIN: Final = timedelta(hours=1)

#: A limit on running jobs does not tell when it will have room. Rescheduled jobs are therefore due
#: at intervals of this length, divided by the number of jobs that may run.
RESCHEDULED_AFTER: Final = timedelta(seconds=1)

_MILLISECOND: Final = timedelta(milliseconds=1)


class KeyOfJob(Func):
    """The limit key of a job, as the same SQL expression that is indexed."""

    output_field = CharField()
    template = "(%(expressions)s ->> 'limit_key')"

    def __init__(self) -> None:
        super().__init__(F("options"))

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """Name the value by its path."""
        template = "(%(expressions)s ->> '$.limit_key')"
        return self.as_sql(compiler, connection, template=template, **extra)

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """Return the column that has the value, because an index of MariaDB has no expression."""
        sql, params = self.as_sql(compiler, connection, template="%(expressions)s", **extra)
        return sql.replace("`options`", "`limit_key`"), params


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyUse(Use):
    """How much of its limits a key uses."""

    #: Limits that replace the limits of its jobs.
    override: Mapping[str, Any] = field(default_factory=dict)
    #: The limit by which its jobs are held; empty if it is not at a limit.
    limited_by: str = ""
    #: Since when none of its jobs is held, while it still counts as being at the limit.
    eased_at: int | None = None
    #: The latest time for which a job of the key was rescheduled.
    rescheduled_until: int | None = None
    #: How many of its jobs were dropped, and when the last one was.
    dropped: int = 0
    dropped_at: int | None = None

    def under(self, policy: Mapping[str, Any]) -> "KeyUse":
        """Return the use under the limits of this policy and of the override."""
        return replace(self, limit=RateLimit.of_job({**policy, **self.override}))

    def after_start(self) -> "KeyUse":
        """Return the use after a job started now."""
        starts = self.starts.after_one_of_key(self.limit, self.now)
        return replace(self, active=self.active + 1, starts=starts)

    def exceeded(self) -> tuple[str, int | None, int | None]:
        """Return the limit that lets no job start: its strategy, its number, and its use."""
        limit = self.limit
        if self.is_paused:
            return "pause", None, None
        if limit.concurrency is not None and self.active >= limit.concurrency:
            return "concurrency", limit.concurrency, self.active
        for rate in limit.windows:
            if self.starts.in_window(rate, self.now) >= rate.limit:
                return "rate", rate.limit, self.starts.in_window(rate, self.now)
        return "throttle", min((rate.limit for rate in limit.throttles), default=None), None

    def rescheduled_at(self) -> int:
        """Return when a job that may not start is due, if it is rescheduled."""
        if self.seconds_to_rate > 0:
            first = self.next_at
        else:
            first = self.now + RESCHEDULED_AFTER // _MILLISECOND
        spacing = max(
            (rate.period_ms // rate.limit for rate in (*self.limit.windows, *self.limit.throttles)),
            default=0,
        )
        if self.limit.concurrency is not None:
            one_by_one = RESCHEDULED_AFTER // _MILLISECOND // max(1, self.limit.concurrency)
            spacing = max(spacing, one_by_one)
        if self.rescheduled_until is None:
            return first
        latest = first + RESCHEDULED_WITHIN // _MILLISECOND
        return min(max(first, self.rescheduled_until + spacing), latest)


def uses_of(keys: Collection[str]) -> dict[str, KeyUse]:
    """Return how much of its limits each key uses; exact while the keys are locked."""
    if not keys:
        return {}
    found = {}
    for row in statements().keys_use(keys):
        # If starts are later than now, they were stored before the clock was set back.
        until_now = Starts.parse(parsed(row.starts)).until(row.now)
        found[row.key] = KeyUse(
            override=parsed(row.override),
            limit=RateLimit(),
            active=row.active,
            starts=until_now,
            now=row.now,
            is_exact=True,
            paused_until=row.paused_until or 0,
            limited_by=row.limited_by or "",
            eased_at=row.eased_at,
            rescheduled_until=row.rescheduled_until,
            dropped=row.dropped or 0,
            dropped_at=row.dropped_at,
        )
    return found


def waits_for(job: Job, may_see: bool) -> Waits | None:
    """Return which limit of its key a job waits for, with arguments only if `may_see`."""
    stored = stored_key(job)
    if stored is None:
        return None
    key = redacted_key(stored, may_see=may_see)
    used = uses_of([stored])[stored].under(job.options.get("rate_limit") or {})
    limit = used.limit
    if used.is_paused:
        duration = formatting.duration((used.paused_until - used.now) / 1000)
        sentence = f"Its key {key} is paused, and its jobs may start in {duration}."
    elif limit.concurrency is not None and used.active >= limit.concurrency:
        sentence = (
            f"It waits for its limit: {formatting.grouped(used.active)} of "
            f"{formatting.grouped(limit.concurrency)} jobs run with the key {key}."
        )
    elif used.seconds_to_rate > 0:
        sentence = (
            f"It waits for its limit: the rate of the key {key} allows the next start in "
            f"{formatting.duration(used.seconds_to_rate)}."
        )
    else:
        return None
    return Waits(kind="limited_by_key", sentence=sentence, about=LimitKey(pk=stored))


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyStatus:
    """The state of a key, for people and for the HTTP API."""

    key: str
    #: The limits of one of its jobs, with its override applied.
    policy: Mapping[str, Any]
    use: KeyUse
    #: The number of available jobs, of rescheduled ones, and of those that are due before its pause
    #: ends; counted up to a maximum.
    waiting: int
    #: None if nothing is stored about the key.
    row: LimitKey | None


def status_of(keys: Collection[str], *, most: int) -> list[KeyStatus]:
    """Return the keys in this order. The number of waiting jobs of each is exact up to `most`."""
    uses = uses_of(keys)
    rows = statements().keys_waiting(keys, most) if keys else []
    waiting = {key: (number, parsed(policy)) for key, number, policy in rows}
    kept = LimitKey.primary.in_bulk(keys)
    found = []
    for key in keys:
        number, policy = waiting[key]
        use = uses[key].under(policy)
        shown = {name: policy[name] for name in LIMITS if policy.get(name) is not None}
        found.append(
            KeyStatus(
                key=key,
                policy={**shown, **use.override},
                use=use,
                waiting=number,
                row=kept.get(key),
            )
        )
    return found


def parsed(stored: str | None) -> dict[str, Any]:
    parsed = {} if stored is None else json.loads_stored(stored)
    assert isinstance(parsed, dict)
    return parsed
