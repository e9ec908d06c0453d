"""What extensions keep from claims: the values of `Job.hold` (see `spec.hold`).

An extension holds jobs by `hold`, and opens them by `release`. It stores which jobs it holds in the
same transaction, so that its hook `holds` can say so. `hold` locks the rows of all jobs that it
gets, and `release` those that another extension may hold too. So an extension that opens a job asks
the others before or after they store what they hold, and misses none. It does so in a transaction
in which each statement sees what was committed before it (`Dialect.read_committed`).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final
from uuid import UUID

from django_ojs.hooks import MOST_NUMBERS, missing_rules, registry
from django_ojs.models import Job, Queue
from django_ojs.spec.hold import FIRST_HELD, FREE, open_to, owner_of
from django_ojs.spec.hold import held_by as held_by
from django_ojs.spec.states import TERMINAL, State
from django_ojs.storage import database, notify, queue_configs
from django_ojs.storage.dialects.expressions import OneOf

# Each value costs one step in the index of claims, however many jobs have it.
_IN_QUEUE: Final = (
    "SELECT min(j.hold) FROM ojs_job AS j "
    f"WHERE j.queue = %s AND j.state = '{State.AVAILABLE.value}'"
)
_VALUES: Final = (
    f"WITH RECURSIVE holds (hold) AS ({_IN_QUEUE} UNION ALL "
    f"SELECT ({_IN_QUEUE} AND j.hold > holds.hold) FROM holds WHERE hold IS NOT NULL) "
    "SELECT hold FROM holds WHERE hold IS NOT NULL"
)


def values_in(queue: str) -> list[int]:
    """Return the values that available jobs of a queue have, in order."""
    with database.connection().cursor() as cursor:
        cursor.execute(_VALUES, [queue, queue])
        return [hold for (hold,) in cursor.fetchall()]


@database.write_transaction
def learn_rules(queue: str) -> int:
    """Read the rules of all queues; return the bits of the rules that jobs of this queue need.

    It is called when a claim did not apply all rules. The row of the queue gets the bits, so
    that the next claim knows them, unless another transaction has locked the row, because a claim
    waits for no lock. So an enqueue neither writes nor locks the row, and it does not matter
    whether the enqueueing process knows the rule.
    """
    owners = {owner_of(hold) for hold in values_in(queue) if FREE < hold < FIRST_HELD}
    bits = sum(1 << owner for owner in owners if owner < MOST_NUMBERS)
    connection = database.connection()
    if database.dialect_of(connection).lock_subject(connection, f"rules of {queue}", wait=False):
        row = Queue.primary.filter(pk=queue)
        if row.select_for_update(skip_locked=True, no_key=True).first() or not row.exists():
            queue_configs.add_rules([queue], bits)
    queue_configs.refresh()
    return bits


def hold(number: int, keys: Collection[UUID]) -> set[UUID]:
    """Hold jobs for the extension with this number. Return those that no other one holds.

    A job that another extension holds stays with it until it opens the job. A running job goes on,
    and is held when it waits again. Jobs that have ended are left out.
    """
    mine = held_by(number)
    jobs = [job for job in _locked(keys) if job.hold < FIRST_HELD or job.hold == mine]
    _set(mine, [job.pk for job in jobs])
    return {job.pk for job in jobs}


def release(number: int, jobs: Mapping[UUID, str], to: int = FREE) -> None:
    """Open the jobs among these that the extension with this number holds.

    `jobs` maps ids to queues, whose workers are notified. `to` is the new value of a job that no
    other extension holds: the rule of this extension may have to decide on it.
    """
    mine = held_by(number)
    if set(registry.holds) <= {number}:
        Job.primary.filter(OneOf("pk", jobs), hold=mine).update(hold=to)
    else:
        _open([job for job in _locked(jobs) if job.hold == mine], but=number, to=to)
    notify.workers_of(set(jobs.values()))


def owned() -> set[int]:
    """Return the values that installed extensions open, by their hook `holds`, and FREE."""
    return {FREE, *(value for each in registry.holds for value in (open_to(each), held_by(each)))}


def release_unowned(keys: Collection[UUID]) -> None:
    """Open the jobs among these that no installed extension would open."""
    database.dialect().read_committed(database.connection())
    known = owned()
    _open([job for job in _locked(keys) if job.hold not in known])


def give_on(number: int, keys: Collection[UUID]) -> None:
    """Open the jobs among these that the extension with this number keeps from claims."""
    jobs = _locked(keys)
    _open([job for job in jobs if job.hold != FREE and owner_of(job.hold) == number], but=number)


def decide_again(jobs: Sequence[Job]) -> None:
    """Keep jobs, which have ended and are to wait again, only for extensions that hold them now.

    The caller has locked them. Since they were held, an extension may have opened or forgotten
    them, or was removed or added. A job whose queue has the rule of an extension that this process
    lacks stays with the claims that apply the rule.
    """
    by_value: dict[int, list[Job]] = {}
    for job in jobs:
        by_value.setdefault(_kept_elsewhere(job), []).append(job)
    for value, some in by_value.items():
        if registry.holds or any(job.hold for job in some):
            _open(some, to=value)


def _kept_elsewhere(job: Job) -> int:
    number = owner_of(job.hold)
    is_missing = job.hold and missing_rules(1 << number) & queue_configs.rules_of(job.queue)
    return open_to(number) if is_missing else FREE


def _open(jobs: Sequence[Job], *, but: int | None = None, to: int = FREE) -> None:
    """Give each of these jobs, which are locked, to the next extension that holds it.

    Extensions that hold it come first, then those whose rules decide on it. Of several, the one
    with the lowest number counts.
    """
    before = {job.pk: job.hold for job in jobs}
    keys = list(before)
    values = {key: [to] for key in keys}
    for number, hook in registry.holds.items():
        if number != but and keys:
            for key, value in hook(keys).items():
                values[key].append(value)
    by_value: dict[int, list[UUID]] = {}
    for key, found in values.items():
        value = min(found, key=lambda each: (each < FIRST_HELD, each == FREE, each))
        if value != before[key]:
            by_value.setdefault(value, []).append(key)
    for value, some in by_value.items():
        _set(value, some)


def _set(value: int, keys: Collection[UUID]) -> None:
    if keys:
        Job.primary.filter(OneOf("pk", keys)).update(hold=value)


def _locked(keys: Collection[UUID]) -> list[Job]:
    jobs = Job.primary.filter(OneOf("pk", keys)).exclude(state__in=TERMINAL)
    jobs = jobs.only("id", "hold").order_by("pk")
    return list(jobs.select_for_update(no_key=True))
