"""The jobs that hold a unique key (ojs-unique-jobs §7.4, §8.1): lock the key, then query.

A transaction that stores a job with a policy holds the lock on its key until it ends. So of two
that store the same key at once, the second queries after the first has committed or rolled back.
"""

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from django.db import connections
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from django_ojs.models import Job
from django_ojs.spec.states import TERMINAL, State, Trigger, sources
from django_ojs.spec.unique_policy import UniquePolicy
from django_ojs.storage import database

T = TypeVar("T")

_TIMED = frozenset(sources(Trigger.TIMER, State.AVAILABLE))
_WAITING = frozenset(sources(Trigger.EXPIRE, State.DISCARDED))


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """A job that holds a key.

    `visible`: this transaction sees it. One with an old snapshot does not see jobs that were
    committed since then.
    """

    job: Job
    visible: bool = True


def lock(keys: Collection[str], *, wait: bool = True) -> bool | None:
    """Lock these keys until the transaction ends.

    Return whether its later queries see all that was committed before this call. Without `wait`,
    return None where another transaction has locked one of them.
    """
    return database.dialect().lock_unique_keys(database.connection(), sorted(keys), wait=wait)


def holders(policy: UniquePolicy, keys: Collection[str], *, fresh: bool) -> dict[str, list[Holder]]:
    """Return the jobs that hold these keys by a policy, newest first; the keys are locked.

    `fresh` is what `lock` returned. For a replacing policy, only jobs that can be cancelled are
    returned: a job that has ended needs no replacement.
    """
    alias = database.alias()
    matching = _matching(policy, keys)
    found = [Holder(job=job) for job in matching.using(alias)]
    if not fresh:
        seen = {holder.job.unique_key for holder in found}
        missed = [key for key in keys if key not in seen]
        found += _outside(alias, _matching(policy, missed).using(alias)) if missed else []
    by_key: dict[str, list[Holder]] = {}
    for holder in found:
        by_key.setdefault(str(holder.job.unique_key), []).append(holder)
    return by_key


def _matching(policy: UniquePolicy, keys: Collection[str]) -> QuerySet[Job]:
    states = set(policy.states)
    if policy.on_conflict.startswith("replace"):
        states -= TERMINAL
    found = Job.objects.filter(_in_states(states), unique_key__in=list(keys))
    if policy.period is not None:
        found = found.filter(created_at__gt=Now() - policy.period)
    found = found.order_by("-created_at", "-pk")
    if len(keys) == 1 and not policy.on_conflict.startswith("replace"):
        found = found[:1]
    return found


def _in_states(states: Collection[State]) -> Q:
    """Return the condition that a job is in one of these states, with overdue transitions applied.

    A job whose deadline has passed counts as discarded, and one that is due as available.
    """
    states = set(states)
    expired = Q(expires_at__isnull=False, expires_at__lte=Now())
    due = Q(due_at__lte=Now())
    condition = Q(state__in=sorted(states - _WAITING))
    alive = Q(state__in=sorted(states & _WAITING - _TIMED))
    for state in sorted(_TIMED):
        if state in states and State.AVAILABLE in states:
            alive |= Q(state=state)
        elif state in states:
            alive |= Q(state=state) & ~due
        elif State.AVAILABLE in states:
            alive |= Q(state=state) & due
    condition |= alive & ~expired
    if State.DISCARDED in states:
        condition |= Q(state__in=sorted(_WAITING)) & expired
    return condition


def _outside(alias: str, jobs: QuerySet[Job]) -> list[Holder]:
    """Query outside of the transaction's snapshot, on a separate connection.

    Jobs in the snapshot are left out: the transaction has queried them itself, and may have changed
    them.
    """
    found = _elsewhere(alias, lambda: list(jobs))
    keys = [job.pk for job in found]
    known = set(Job.objects.using(alias).filter(pk__in=keys).values_list("pk", flat=True))
    return [Holder(job=job, visible=False) for job in found if job.pk not in known]


def _elsewhere(alias: str, query: Callable[[], T]) -> T:
    # Another thread has other connections.
    def run() -> T:
        try:
            return query()
        finally:
            connections[alias].close()

    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(run).result()
