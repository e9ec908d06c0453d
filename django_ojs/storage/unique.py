"""The jobs that hold a unique key (ojs-unique-jobs §7.4, §8.1): lock the key, then query.

A transaction that stores a job with a policy holds the lock on its key until it ends. So if two
transactions store the same key at once, the second queries after the first has committed or rolled
back.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from uuid import UUID

from django_ojs.models import Job
from django_ojs.spec.states import TERMINAL, State, Trigger, sources
from django_ojs.spec.unique_policy import UniquePolicy
from django_ojs.storage import database, raw_queries

_TIMED = frozenset(sources(Trigger.TIMER, State.AVAILABLE))
_WAITING = frozenset(sources(Trigger.EXPIRE, State.DISCARDED))


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """A job that holds a key.

    `visible`: this transaction sees it. A transaction with an old snapshot does not see jobs that
    were committed since then.
    """

    job: Job
    visible: bool = True


def lock(keys: Collection[str], *, wait: bool = True) -> bool | None:
    """Lock these keys until the transaction ends.

    Return whether later queries of the transaction see all that was committed before this call.
    Without `wait`, return None where another transaction has locked one of them.
    """
    return database.dialect().lock_unique_keys(database.connection(), sorted(keys), wait=wait)


def holders(policy: UniquePolicy, keys: Collection[str], *, fresh: bool) -> dict[str, list[Holder]]:
    """Return the jobs that hold these keys by a policy, newest first; the keys are locked.

    `fresh` is what `lock` returned. For a replacing policy, only jobs that can be cancelled are
    returned: a job that has ended needs no replacement.
    """
    if fresh:
        found = [Holder(job=job) for job in _matching(policy, list(keys))]
    else:
        found = _now(policy, list(keys))
    by_key: dict[str, list[Holder]] = {}
    for holder in found:
        by_key.setdefault(str(holder.job.unique_key), []).append(holder)
    return by_key


def _matching(policy: UniquePolicy, keys: Sequence[str], *, all_of_key: bool = False) -> list[Job]:
    # The SQL is literal, because building it by the ORM took three quarters of an enqueue.
    states = set(policy.states)
    replaces = policy.on_conflict.startswith("replace")
    if replaces:
        states -= TERMINAL
    where = f"unique_key IN ({', '.join(['%s'] * len(keys))}) AND ({_in_states(states)})"
    if policy.period is not None:
        where += f" AND created_at > {database.dialect().ago(policy.period.total_seconds())}"
    newest = "ORDER BY created_at DESC, id DESC"
    if len(keys) == 1 and not replaces and not all_of_key:
        newest += " LIMIT 1"
    return raw_queries.rows(Job, f"{where} {newest}", keys)


def _in_states(states: Collection[State]) -> str:
    """Return the condition that a job is in one of these states, with overdue transitions applied.

    A job whose deadline has passed counts as discarded, and one that is due as available.
    """
    states = set(states)
    now = database.dialect().now
    expired = f"expires_at IS NOT NULL AND expires_at <= {now}"
    alive = [_is_one_of(states & _WAITING - _TIMED)]
    if State.AVAILABLE in states:
        alive.append(f"{_is_one_of(_TIMED - states)} AND due_at <= {now}")
        alive.append(_is_one_of(_TIMED & states))
    else:
        alive.append(f"{_is_one_of(_TIMED & states)} AND due_at > {now}")
    found = f"{_is_one_of(states - _WAITING)} OR ({' OR '.join(alive)}) AND NOT ({expired})"
    if State.DISCARDED in states:
        found += f" OR {_is_one_of(_WAITING)} AND {expired}"
    return found


def _is_one_of(states: Collection[State]) -> str:
    """Return the condition that a job is in one of these states. It is false if there are none."""
    names = ", ".join([f"'{state}'" for state in sorted(states)])
    return f"state IN ({names})" if names else "1 = 0"


def _now(policy: UniquePolicy, keys: Sequence[str]) -> list[Holder]:
    """Return the jobs that hold these keys now, and not when the transaction's snapshot was taken.

    Jobs that others have stored or changed since are read outside of it, on another connection.
    What this transaction itself has changed counts as it is here.
    """
    seen = {job.pk: job for job in _matching(policy, keys, all_of_key=True)}
    found, others = database.elsewhere(partial(_outside, policy, keys, set(seen)))
    known = Job.primary.in_bulk([job.pk for job in found if job.pk not in seen])
    return [
        Holder(job=job)
        for job in seen.values()
        if job.pk not in others or not _is_later(others[job.pk], job)
    ] + [
        Holder(job=job, visible=False)
        for job in found
        if job.pk not in seen and (job.pk not in known or _is_later(job, known[job.pk]))
    ]


def _outside(
    policy: UniquePolicy, keys: Sequence[str], seen: set[UUID]
) -> tuple[list[Job], dict[UUID, Job]]:
    """Return the jobs that hold these keys, and those among `seen` that do not, by their ids."""
    found = _matching(policy, keys, all_of_key=True)
    return found, Job.primary.in_bulk(seen.difference(job.pk for job in found))


def _is_later(job: Job, other: Job) -> bool:
    """Whether a row of a job has been changed after another row of the same job."""
    return _changed_at(job) > _changed_at(other)


def _changed_at(job: Job) -> tuple[datetime, bool]:
    times = (job.enqueued_at, job.activated_at, job.started_at, job.finished_at)
    # A failure that is retried leaves the times as they are.
    return max([job.created_at, *filter(None, times)]), job.state == State.RETRYABLE
