"""Write steps: each statement or transaction checks that the run still holds the job."""

from collections.abc import Callable, Collection
from datetime import datetime
from functools import cache
from typing import Any, Final, TypeAlias

from django.db import IntegrityError
from django.db.models import F
from django.db.models.functions import Now

from django_ojs.extension import Known
from django_ojs.extensions.steps.models import Step, StepSignal
from django_ojs.models import Job
from django_ojs.spec.errors import ClaimLost, RowLocked
from django_ojs.spec.states import State, Trigger
from django_ojs.storage import database, notify, transitions
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.transitions import Claim

#: A job that a run holds: as our worker claimed it, or its row for a client of the HTTP API.
Held: TypeAlias = Claimed | Job

_FIELDS: Final = Step._meta.concrete_fields


def now() -> datetime:
    """Return the time by the clock of the database."""
    return database.dialect().clock(database.connection())


def of(job: Held) -> list[Step]:
    """Return the steps of a job, in order, read by one query."""
    return list(Step.primary.filter(job_id=job.id).order_by("number"))


@cache
def _insert_sql(vendor: str, columns: tuple[str, ...], worker: str, passes_by: bool) -> str:
    link = database.connection()
    ops: Any = link.ops
    lock = ""
    if link.features.has_select_for_update:
        # Until the commit, nothing takes the job from this run, so no step is stored after a later
        # run has begun. The commit comes soon, and heartbeats pass by the locked row.
        lock = ops.for_update_sql(
            skip_locked=passes_by, no_key=link.features.has_select_for_no_key_update
        )
    names = ", ".join(ops.quote_name(column) for column in columns)
    values = ", ".join(["%s"] * len(columns))
    return (
        f"INSERT INTO {Step._meta.db_table} ({names}) SELECT {values} FROM ojs_job AS j "
        f"WHERE j.id = %s AND j.state = '{State.ACTIVE}' AND j.run = %s "
        f"AND j.worker_id {worker} {lock}"
    )


@database.retry_contention
def insert(job: Held, step: Step) -> None:
    """Store a new step, in the caller's transaction or by itself.

    Raises ClaimLost; within `database.passing_by` RowLocked.
    """
    link, passes_by = database.connection(), database.passes_by()
    # Most columns of most steps are NULL.
    given = {
        field: value
        for field in _FIELDS
        if (value := getattr(step, str(field.attname))) is not None
    }
    columns = tuple(field.column for field in given)
    values = [field.get_db_prep_save(value, connection=link) for field, value in given.items()]
    key = Job._meta.pk.get_db_prep_value(job.id, link)
    # A client may claim without the id of a worker.
    worker, ids = ("= %s", [job.worker_id]) if job.worker_id is not None else ("IS NULL", [])
    try:
        with link.cursor() as cursor:
            sql = _insert_sql(link.vendor, columns, worker, passes_by)
            cursor.execute(sql, [*values, key, job.run, *ids])
            stored = cursor.rowcount
    except IntegrityError as error:
        stored = not link.in_atomic_block and _is_stored(job, step)
        if not stored:
            raise _lost(job) from error
    if stored != 1:
        if passes_by and is_held(transitions.get(job.id), claim_of(job)):
            raise RowLocked.of_job(job.id)
        raise _lost(job)


def _is_stored(job: Held, step: Step) -> bool:
    """Whether this run has stored a step whose INSERT was committed but whose response was lost."""
    same = Step.primary.filter(job_id=job.id, number=step.number, name=step.name, run=job.run)
    return same.exists()


@database.write_transaction
def update(job: Held, step: Step) -> None:
    """Store the outcome of a step that waited. Raises as `insert` does."""
    lock(job)
    values = {f.attname: getattr(step, f.attname) for f in _FIELDS if not f.primary_key}
    waiting = Step.primary.filter(job_id=step.job_id, number=step.number)
    if not waiting.update(**{k: v for k, v in values.items() if k not in ("job_id", "number")}):
        raise _lost(job)


@database.write_transaction
def suspend(
    job: Held, step: Step, *, is_new: bool, has_come: Callable[[], bool] | None = None
) -> None:
    """Store a step that waits, and give its job back until the end of the wait.

    `has_come` returns whether what the step waits for is there already; then the job is available
    at once. Raises Conflict, ClaimLost, JobNotFound and RowLocked as an ACK does.
    """
    assert step.until is not None
    # A snapshot from before the lock would lack what the last holder of the lock has committed.
    database.dialect().read_committed(database.connection())
    if step.signal is not None:
        # The sender takes the same lock: the signal is found here, or the sender finds the step.
        lock_signal(step.signal, str(step.key))
    lock(job)
    if is_new:
        insert(job, step)
    else:
        update(job, step)
    known = Known(jobs={job.id: job}, workers={job.id: job.worker_id}, spends=False)
    transitions.apply_one(
        Trigger.RETURN,
        State.AVAILABLE,
        job.id,
        known=known,
        returned=F("returned") + 1,
        enqueued_at=Now(),
        lease_until=None,
        worker_id=None,
    )
    if has_come is not None and has_come():
        notify.workers_of([job.queue])
    else:
        transitions.reschedule({job.id: step.until})


def lock_signal(name: str, key: str) -> None:
    """Lock the signals of a name and key until the transaction ends.

    Raises RowLocked if another transaction has the lock, within `database.passing_by`.
    """
    # The length keeps names and keys apart: "a b" and "c" are not "a" and "b c".
    subject = f"steps signal {len(name)} {name} {key}"
    link, dialect = database.connection(), database.dialect()
    if not dialect.lock_subject(link, subject, wait=not database.passes_by()):
        raise RowLocked("Another session sends this signal, or waits for it; try again.")


def find_signal(name: str, key: str, got: Collection[int]) -> StepSignal | None:
    """Return the earliest signal that is not in `got`."""
    return StepSignal.primary.filter(name=name, key=key).exclude(pk__in=got).order_by("pk").first()


def lock(job: Held) -> None:
    """Lock the job if this run still holds it. Raises as `suspend` does."""
    transitions.lock_active(job.id, Trigger.RETURN, State.AVAILABLE, claim_of(job))


def claim_of(job: Held) -> Claim:
    """Return the claim of the run."""
    return Claim(worker_id=job.worker_id, run=job.run)


def is_held(job: Job, claim: Claim) -> bool:
    """Whether a job runs under this claim."""
    return job.state == State.ACTIVE and claim.holds(job)


def _lost(job: Held) -> ClaimLost:
    return ClaimLost(
        "This run no longer holds the job: its step was not stored.",
        details={"job_id": str(job.id)},
    )
