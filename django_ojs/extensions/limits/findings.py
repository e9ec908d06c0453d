"""Findings about limit keys.

A finding is stored, and shown to people who may not see the arguments of jobs. So it leaves out the
arguments in a key.
"""

import hashlib
from datetime import timedelta
from typing import Final

from django.db.models import Count, F, Q, Sum
from django.db.models.functions import Now

from django_ojs.extensions.limits import claims_by_key
from django_ojs.extensions.limits.limit_statements import statements
from django_ojs.extensions.limits.models import LimitKey
from django_ojs.finding import AdminPage, Finding
from django_ojs.formatting import absolute_time, grouped, number_of
from django_ojs.operations.jobs.redaction import redacted_key
from django_ojs.storage import database, raw_queries

#: Limit keys are counted up to this number.
_MOST: Final = 10_000
#: Shorter pauses of limit keys are not reported.
_SHORT_PAUSE: Final = timedelta(minutes=1)
#: How many of the longest pauses are read, how far the waiting jobs of each key are counted, and
#: how many keys are named.
_MOST_PAUSED: Final = 50
_MOST_WAITING: Final = 1_000
_MOST_NAMED: Final = 5


def condition() -> str:
    """Return the SQL condition that there may be something to find."""
    ago = database.dialect().ago
    dropped = f"dropped_at > {ago(claims_by_key.DROPPED_WITHIN.total_seconds())}"
    return raw_queries.condition(LimitKey, f"{dropped} OR paused_until > {ago(0)}")


def found() -> list[Finding]:
    """Find the limit keys with drops in the last hour, and those that are paused for long."""
    drops = Q(dropped_at__gt=Now() - claims_by_key.DROPPED_WITHIN)
    # A short pause is no problem: a handler asks for it while a service rejects calls.
    is_paused = Q(paused_until__gt=Now(), paused_until__gte=F("paused_at") + _SHORT_PAUSE)
    figures = (
        LimitKey.primary.filter(drops | is_paused)
        .order_by()[:_MOST]
        .aggregate(
            jobs=Sum("dropped", filter=drops, default=0),
            dropping=Count("pk", filter=drops),
            paused=Count("pk", filter=is_paused),
        )
    )
    results = [_drops(figures["jobs"], figures["dropping"])] if figures["dropping"] else []
    if figures["paused"]:
        longest = LimitKey.primary.filter(is_paused).order_by("-paused_until", "pk")
        rows = {row.pk: row for row in longest[:_MOST_PAUSED]}
        counted = statements().keys_waiting(rows, _MOST_WAITING + 1)
        numbers = {key: number for key, number, _ in counted if number}
        waiting = sorted(
            ((row, numbers[key]) for key, row in rows.items() if key in numbers),
            key=lambda each: -each[1],
        )
        named = [_paused(row, number) for row, number in waiting[:_MOST_NAMED]]
        results += named
        more = figures["paused"] - len(rows) + len(waiting) - len(named)
        if more > 0:
            results.append(_more_paused(more))
    return results


def _drops(jobs: int, keys: int) -> Finding:
    return Finding(
        kind="limit_drops",
        text=f"{number_of(jobs, 'job')} {'was' if jobs == 1 else 'were'} dropped at "
        f"{number_of(keys, 'rate limit')}, the last one less than an hour ago.",
        why="They are discarded, because on_limit of their limits is drop.",
        cure="Raise the limits, or let jobs wait.",
        command="ojs limits list",
        jobs=jobs,
        pages=(AdminPage(model=LimitKey),),
    )


def _paused(row: LimitKey, number: int) -> Finding:
    waiting = min(number, _MOST_WAITING)
    least = "at least " if number > waiting else ""
    key = redacted_key(row.pk, may_see=False)
    return Finding(
        kind="limit_key_paused",
        subject=hashlib.sha256(row.pk.encode()).hexdigest()[:16],
        text=f"Limit key {key} is paused until {absolute_time(row.paused_until)}: "
        f"{least}{number_of(waiting, 'job')} {'waits' if waiting == 1 else 'wait'}.",
        why="None of them starts before that, in any queue.",
        cure="Resume it when the cause of the pause is over.",
        command="ojs limits list",
        jobs=waiting,
        since=row.paused_at,
        pages=(
            AdminPage(
                model=LimitKey,
                key=row.pk,
                action="resume",
                state=(("paused_until", row.paused_until),),
            ),
            AdminPage(model=LimitKey, key=row.pk, names_key=True),
        ),
    )


def _more_paused(number: int) -> Finding:
    return Finding(
        kind="limit_keys_paused",
        text=f"More limit keys that are paused: {grouped(number)}.",
        why="None of their jobs starts before the ends of their pauses.",
        cure="Resume each key when the cause of its pause is over.",
        command="ojs limits list",
        pages=(AdminPage(model=LimitKey),),
    )
