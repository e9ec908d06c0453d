"""Take back jobs with a lapsed lease, jobs of dead workers, and claims that never ran."""

import logging
import time
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.db.models import Count, F, Q, QuerySet
from django.db.models.functions import Now

from django_ojs.extension import Known
from django_ojs.models import Attempt, Job, Worker
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.operations import dead_letter_queue, worker_activity
from django_ojs.operations.histories import record
from django_ojs.operations.maintenance import lease
from django_ojs.operations.workers.removal import remove_all
from django_ojs.spec.failure import Failure
from django_ojs.spec.isolation import ISOLATED_AFTER
from django_ojs.spec.states import State, Trigger
from django_ojs.storage import database, notify, raw_queries, transitions
from django_ojs.storage.database import BATCH
from django_ojs.storage.dialects.base import ALWAYS
from django_ojs.storage.dialects.expressions import Milliseconds, OneOf
from django_ojs.storage.dialects.server import Session
from django_ojs.storage.transitions import Claim, Taken

logger = logging.getLogger("django_ojs.worker")


#: How many lapsed leases are found at once. That reads all active jobs: no index has the leases,
#: because each heartbeat would write to it.
FOUND: Final = 20 * BATCH

#: Seconds for which a lapsed job is left to its worker after another session had locked its row: a
#: worker over HTTP sends a heartbeat about this often.
AFTER_LOCK: Final = 15.0

_UNKNOWN: Final = Failure(
    type="claim_unknown",
    message="The worker lives and does not have the job: the response to the claim did not arrive, "
    "and nothing ran; or the job ran, and a failover of the database lost the outcome.",
)

#: A worker that was found dead counts as dead for this many seconds only, because this process may
#: be stopped in between.
LOOK_LASTS: Final = 2.0


def lapse(limit: int = BATCH) -> int:
    """Take back jobs whose lease lapsed without ACK or FAIL (worker-protocol §5.5).

    They become available at once, or are discarded when their attempts are spent. Return how many.
    """
    return _lapse(_find_lapsed(limit))


class LapseCheck:
    """Takes back lapsed leases one batch at a time, and finds the jobs of many batches at once.

    With `since`, it does nothing until a lease lapsed that long ago, which shows that maintenance
    is behind. If a lease lapsed while the database could store nothing, its worker gets the time of
    a heartbeat to extend it.
    """

    def __init__(self, *, since: timedelta = timedelta(0)) -> None:
        self._since = since
        self._found: list[UUID] = []
        #: Lapsed jobs whose rows another session had locked, and when that was seen last.
        self._locked: dict[UUID, float] = {}

    def lapse(self) -> int:
        """Take back one batch. Return how many; at least `BATCH` when there may be more."""
        if not self._found and self._is_wanted():
            self._found = raw_queries.keys(Job, _lapsed_in_time(), limit=FOUND)
        if self._found and not worker_activity.jobs_are_writable():
            # Extensions of leases waited for the same lock, and are stored now.
            self._found = []
        batch, self._found = self._found[:BATCH], self._found[BATCH:]
        batch = self._without_locked(batch)
        # Another worker may have taken these jobs back, or their worker may have extended its
        # leases.
        count = _lapse(batch)
        if count < len(batch):
            self._note_locked(batch)
        return max(count, BATCH) if self._found else count

    def _without_locked(self, keys: Sequence[UUID]) -> list[UUID]:
        """Leave out jobs whose rows were locked a moment ago.

        Their workers could not extend the leases while the rows were locked, and now have time for
        a heartbeat.
        """
        if self._locked:
            self._note_locked([key for key in keys if key in self._locked])
            recent = time.monotonic() - AFTER_LOCK
            self._locked = {key: at for key, at in self._locked.items() if at > recent}
        return [key for key in keys if key not in self._locked]

    def _note_locked(self, keys: Sequence[UUID]) -> None:
        if keys:
            self._locked |= dict.fromkeys(_locked_among(keys), time.monotonic())

    def _is_wanted(self) -> bool:
        if not self._since:
            return True
        late = Job.primary.filter(state=State.ACTIVE, lease_until__lte=Now() - self._since)
        return late.exists()


def lapsed_condition() -> str:
    """Return the SQL condition that a lease has lapsed."""
    return raw_queries.condition(Job, _lapsed_in_time())


def _find_lapsed(limit: int) -> list[UUID]:
    return raw_queries.keys(Job, _lapsed(), limit=limit)


def _lapsed_in_time() -> str:
    # A worker extends a lease with each heartbeat, or more often if the lease is shorter.
    beat_ms = (
        "SELECT CASE WHEN beat_interval_ms < ojs_job.lease_ms THEN beat_interval_ms "
        "ELSE ojs_job.lease_ms END FROM ojs_worker "
        "WHERE id = ojs_job.worker_id AND beat_interval_ms IS NOT NULL"
    )
    steady = database.dialect().steady(f"coalesce(({beat_ms}), 0)")
    # The worker sends heartbeats, but something keeps it from extending its leases, such as a lock.
    is_behind = (
        "EXISTS (SELECT 1 FROM ojs_worker WHERE id = ojs_job.worker_id "
        "AND beat_interval_ms IS NOT NULL AND steady_since IS NULL)"
    )
    return f"{_lapsed()} AND {steady} AND NOT {is_behind}"


def _lapsed() -> str:
    return f"state = '{State.ACTIVE.value}' AND lease_until <= {database.dialect().now}"


def _lapsed_among(keys: Collection[UUID]) -> QuerySet[Job]:
    return Job.primary.filter(OneOf("pk", keys), state=State.ACTIVE, lease_until__lte=Now())


@database.write_transaction
def _locked_among(keys: Collection[UUID]) -> set[UUID]:
    """Return the jobs whose leases have lapsed and whose rows another session has locked."""
    lapsed = _lapsed_among(keys)
    found = set(lapsed.values_list("pk", flat=True))
    return found.difference(transitions.lock_free(lapsed))


def _lapse(keys: Collection[UUID]) -> int:
    if not keys:
        return 0
    failure = Failure(
        type="visibility_timeout",
        message="The lease expired before the worker reported an outcome.",
    )
    lapsed = _lapsed_among(keys)
    return len(_take_back_some(lapsed, failure, AttemptOutcome.LAPSED, len(keys), spends=True)[1])


def rescue(worker_ids: Collection[str], limit: int = BATCH, *, exit_code: int | None = None) -> int:
    """Take back all jobs of dead workers, and remove these workers (worker-protocol §10.2).

    A job that a worker held alone spends an attempt. If it held several, it is not known which of
    them may have killed it, so the first ISOLATED_AFTER such losses of a job spend none.
    `exit_code` is that of the worker's process, if it is known. Return how many jobs.
    """
    if not worker_ids:
        return 0
    lease.release(worker_ids)
    orphans = Job.primary.filter(state=State.ACTIVE, worker_id__in=worker_ids)
    held = orphans.values("worker_id").annotate(
        jobs=Count("pk"),
        isolated=Count("pk", filter=Q(lost_with_others=ISOLATED_AFTER - 1)),
    )
    rescued: Counter[str] = Counter()
    for row in held.order_by("worker_id"):
        worker_id, jobs = str(row["worker_id"]), row["jobs"]
        theirs = orphans.filter(worker_id=worker_id)
        if jobs > 1:
            _log_several_lost(worker_id, jobs, row["isolated"])
            failure = Failure(
                type="worker_death",
                message=f"The worker died while it held {jobs} jobs, any of which may be the "
                "cause. This run spends no attempt.",
            )
            uncertain = theirs.filter(lost_with_others__lt=ISOLATED_AFTER)
            rescued[worker_id] += _take_back_all(uncertain, failure, limit, spends=False)
            theirs = theirs.filter(lost_with_others__gte=ISOLATED_AFTER)
        alone = theirs.filter(lost_with_others__gte=ISOLATED_AFTER).values_list("pk", flat=True)
        cause = alone.first() if jobs == 1 else None
        failure = Failure(type="worker_death", message="The worker that ran the job died.")
        rescued[worker_id] += _take_back_all(theirs, failure, limit)
        if cause is not None:
            _end_isolation_beside(cause)
    # A job that another transaction has locked, or for which a hook raises, is left to the next
    # call, and so is its worker.
    left = orphans.values_list("worker_id", flat=True)
    gone = Worker.primary.filter(pk__in=worker_ids).exclude(pk__in=left)
    remove_all(gone, "error", jobs_rescued=rescued, exit_code=exit_code)
    return rescued.total()


@database.write_transaction
def _end_isolation_beside(cause: UUID) -> None:
    """End the isolation of jobs that were lost together with the job that was the cause."""
    lost = Attempt.primary.filter(outcome=AttemptOutcome.LOST)
    isolated = Job.primary.filter(state=State.AVAILABLE, lost_with_others__gte=ISOLATED_AFTER)
    beside = isolated.filter(
        pk__in=lost.filter(
            job__in=isolated.values("pk"),
            worker_id__in=lost.filter(job=cause).values("worker_id"),
        ).values("job")
    ).exclude(pk=cause)
    queue_of = dict(beside.values_list("pk", "queue"))
    if queue_of:
        # One more loss isolates it again: there may have been two causes.
        found = transitions.lock_free(isolated.filter(OneOf("pk", queue_of.keys())))
        Job.primary.filter(OneOf("pk", found)).update(lost_with_others=ISOLATED_AFTER - 1)
        notify.workers_of(set(queue_of.values()))


def _log_several_lost(worker_id: str, jobs: int, isolated: int) -> None:
    logger.warning(
        "%s died with %d jobs. They run again without spending an attempt%s.",
        worker_id,
        jobs,
        f"; {isolated} of them alone, to find the job that kills its worker" if isolated else "",
    )


class DeadWorkers:
    """Finds dead workers and takes back their jobs.

    A worker is dead after three missed heartbeats, if heartbeats of others were stored meanwhile;
    or when its database session has ended: a live worker that lost its connection soon has a new
    one. A session that the role of this process may not see proves nothing. Two checks in a row
    must find a worker dead.
    """

    def __init__(self, own: str | None = None) -> None:
        # The worker that runs this check is alive, however late its heartbeats are.
        self._own = own
        self._suspects: set[tuple[str, Session | None]] = set()
        self._back_at: float | None = None

    def database_was_away(self) -> None:
        """Give workers whose sessions have ended the time of a heartbeat to connect again."""
        self._back_at = time.monotonic()
        self._suspects = set()

    def take_lease(self, holder: str) -> bool:
        """Take the lease of the maintenance, even from a holder whose session has ended.

        One check of the session is enough for that: a holder that is still alive notices within a
        second that it no longer has the lease.
        """
        condition = database.dialect().dead_workers_condition
        return lease.take(holder, is_over=condition(back_for=self._back_for(), of_lease=True))

    @property
    def had_outage(self) -> bool:
        """Whether the database has been away. Then `condition` changes with each call."""
        return self._back_at is not None

    def _back_for(self) -> float:
        return ALWAYS if self._back_at is None else time.monotonic() - self._back_at

    def condition(self) -> str:
        """Return the SQL condition that a worker may be dead. If it is false, call `none_found`."""
        return database.dialect().dead_workers_condition(back_for=self._back_for())

    def none_found(self) -> None:
        """Note that a check has found no dead worker."""
        self._suspects = set()

    def take_back(self) -> int:
        """Check once, and return how many jobs were taken back.

        Two checks must be about half a second apart.
        """
        looked_at = time.monotonic()
        dead = database.dialect().dead_workers(database.connection(), back_for=self._back_for())
        found = {(worker, session) for worker, session in dead if worker != self._own}
        twice = found & self._suspects
        self._suspects = found
        if not twice:
            return 0
        count = 0
        if worker_activity.jobs_are_writable():
            for worker in _still_dead(twice):
                if time.monotonic() - looked_at >= LOOK_LASTS:
                    break
                count += rescue([worker])
        else:
            # Their heartbeats may have waited as well, and are stored now.
            self._suspects = set()
        return count


@database.write_transaction
def _still_dead(found: Collection[tuple[str, Session | None]]) -> list[str]:
    """Return the workers whose rows no session has locked: a heartbeat may wait for such a lock."""
    gone = [worker for worker, session in found if session is not None]
    silent = Q(seen_at__lte=Now() - Milliseconds(F("dead_after_ms")))
    dead = Worker.primary.filter(silent | Q(pk__in=gone), pk__in=[worker for worker, _ in found])
    locked = dead.select_for_update(skip_locked=True, no_key=True)
    return sorted(locked.values_list("pk", flat=True))


def _take_back_all(
    which: QuerySet[Job], failure: Failure, limit: int, *, spends: bool = True
) -> int:
    """Take back lost jobs, `limit` in one transaction. Return how many."""
    count, left = 0, set[UUID]()
    while which.exclude(pk__in=left).exists():
        found, taken = _take_back_some(
            which.exclude(pk__in=left), failure, AttemptOutcome.LOST, limit, spends=spends
        )
        if not found:
            break
        count += len(taken)
        left |= found.difference(job.id for job in taken)
    return count


@database.write_transaction
def _take_back_some(
    which: QuerySet[Job], failure: Failure, outcome: AttemptOutcome, limit: int, *, spends: bool
) -> tuple[set[UUID], list[Taken]]:
    """Take back some of these jobs. Return those that were not locked, and those taken back."""
    # There is no order: the query waits for no lock, and a sort would read all of them for each
    # batch.
    locked = which.select_for_update(skip_locked=True, no_key=True)
    held: dict[UUID, str | None] = dict(locked.values_list("pk", "worker_id")[:limit])
    if not held:
        return set(), []
    error = failure.render()
    known = Known(workers=held, failures=dict.fromkeys(held, failure), spends=spends)

    def take_back(keys: Sequence[UUID]) -> list[Taken]:
        record(keys, outcome, error)
        return transitions.take_back(keys, error, known)

    changed = transitions.change_together(Trigger.LAPSE, list(held), take_back)
    taken = [job for jobs in changed for job in jobs]
    notify.workers_of(job.queue for job in taken if job.state == State.AVAILABLE)
    dead_letter_queue.move({job.id: job.queue for job in taken if job.state == State.DISCARDED})
    return set(held), taken


def give_back(claims: Sequence[tuple[UUID, int]], *, worker_id: str) -> int:
    """Return to their queues claimed jobs that never started, given as (id, run).

    They spend no attempt, and no attempt is recorded. Return how many. Jobs whose rows another
    session has locked stay with the worker.
    """
    return _give_back(claims, worker_id, None) if claims else 0


def give_back_all_but(started: Collection[tuple[UUID, int]], *, worker_id: str) -> int:
    """Return to their queues the jobs that a dead worker had claimed and not started.

    `started` are its other jobs, as (id, run). If it had started none, the claim may have killed
    it, and nothing is returned: no job may run forever without spending an attempt.
    """
    active = Job.primary.filter(state=State.ACTIVE, worker_id=worker_id)
    held = set(active.values_list("pk", "run"))
    waiting = sorted(held.difference(started))
    if len(waiting) == len(held):
        return 0
    return sum(
        give_back(waiting[index : index + BATCH], worker_id=worker_id)
        for index in range(0, len(waiting), BATCH)
    )


def give_back_unknown(known: Collection[tuple[UUID, int]], *, worker_id: str) -> int:
    """Return to their queues the jobs that a live worker holds without knowing it.

    Their claim was committed, but its response was lost with the connection; or a failover lost the
    outcome of a run but not its claim. The history of the job records this, because in the second
    case the job has run. `known` are the jobs in flight, as (id, run).
    """
    active = Job.primary.filter(state=State.ACTIVE, worker_id=worker_id)
    unknown = sorted(set(active.values_list("pk", "run")).difference(known))
    return sum(
        _give_back(unknown[index : index + BATCH], worker_id, _UNKNOWN)
        for index in range(0, len(unknown), BATCH)
    )


@database.write_transaction
def _give_back(claims: Sequence[tuple[UUID, int]], worker_id: str, failure: Failure | None) -> int:
    which = Q()
    for key, run in claims:
        which |= Q(pk=key, run=run)
    mine = Job.primary.filter(which, state=State.ACTIVE, worker_id=worker_id)
    keys = transitions.lock_free(mine)
    claimed = Job.primary.filter(OneOf("pk", keys))
    queues = set(claimed.values_list("queue", flat=True))

    def put_back(keys: Sequence[UUID]) -> int:
        if failure is not None:
            record(keys, AttemptOutcome.RETURNED, failure.render())
        return transitions.apply(
            Trigger.RETURN,
            State.AVAILABLE,
            dict.fromkeys(keys, State.ACTIVE),
            claim=Claim(worker_id=worker_id),
            known=Known(spends=False, has_run=False),
            returned=F("returned") + 1,
            # `enqueued_at` stays, so they keep their position in the queue.
            started_at=None,
            lease_until=None,
            worker_id=None,
        )

    returned = sum(transitions.change_together(Trigger.RETURN, keys, put_back))
    notify.workers_of(queues)
    return returned
