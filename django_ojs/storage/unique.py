"""Which jobs hold a unique key (ojs-unique-jobs §7.4, §8.1): locked first, looked at afterwards.

Whoever stores a job with a policy holds the lock on its key until the transaction ends. So of two
that store the same key at once, the second looks when the first has committed, or is gone.
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

    `visible`: this transaction sees it. One that looks at the database as it was at its beginning
    does not see what was committed since.
    """

    job: Job
    visible: bool = True


def lock(keys: Collection[str]) -> bool:
    """Hold these keys until the transaction ends.

    Return whether what the transaction reads from now on is what was committed before.
    """
    return database.dialect().lock_unique_keys(database.connection(), sorted(keys))


def holders(policy: UniquePolicy, keys: Collection[str], *, fresh: bool) -> dict[str, list[Holder]]:
    """Return the jobs that hold these keys by a policy, newest first; the keys are locked.

    `fresh` is what `lock` returned. A replacing policy is told of what can be cancelled only: a
    job that has ended needs no replacing.
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
    found = Job.objects.filter(_seen_as(states), unique_key__in=list(keys))
    if policy.period is not None:
        found = found.filter(created_at__gt=Now() - policy.period)
    found = found.order_by("-created_at", "-pk")
    if len(keys) == 1 and not policy.on_conflict.startswith("replace"):
        found = found[:1]
    return found


def _seen_as(states: Collection[State]) -> Q:
    """Return the condition that a job is in one of these states, though nobody has moved it yet.

    One whose deadline has passed is discarded, and one that is due is available.
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
    """Look past the transaction's snapshot, on a connection of its own.

    What the snapshot holds is left out: the transaction has judged that by itself, and may have
    changed it.
    """
    found = _elsewhere(alias, lambda: list(jobs))
    keys = [job.pk for job in found]
    known = set(Job.objects.using(alias).filter(pk__in=keys).values_list("pk", flat=True))
    return [Holder(job=job, visible=False) for job in found if job.pk not in known]


def _elsewhere(alias: str, look: Callable[[], T]) -> T:
    # A thread has connections of its own.
    def run() -> T:
        try:
            return look()
        finally:
            connections[alias].close()

    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(run).result()
