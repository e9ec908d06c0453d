"""Store the outcomes of jobs: completions and failures in groups, other changes one by one."""

import heapq
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import UUID

from django.db import Error, connections

from django_ojs import hooks
from django_ojs.conf import settings
from django_ojs.extension import Known, Suspended
from django_ojs.hooks import UNDONE_BY
from django_ojs.models import Job
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.operations import ack, fail
from django_ojs.operations.workers import rescue
from django_ojs.spec.errors import Conflict, JobNotFound, OJSError, RowLocked
from django_ojs.spec.failure import Failure, ResultRejected
from django_ojs.spec.states import State
from django_ojs.storage import database, transitions
from django_ojs.storage.backoff import Backoff
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.next_starts import next_starts
from django_ojs.worker.in_flight import JobsInFlight, Phase, Run
from django_ojs.worker.job_log import JobLog, number_of_jobs
from django_ojs.worker.outcome_group_size import GroupSize

logger = logging.getLogger("django_ojs")

#: Seconds in which completions are collected. It bounds how many jobs run twice after a crash, and
#: costs a short job less than its claim.
BATCH_WINDOW = 0.003

#: The most completions in one statement.
MAX_BATCH = 500

#: The most failures in one transaction. A group also ends when its texts have this many characters,
#: because completions wait for a whole group.
MAX_FAILURES = 100
MAX_FAILURE_CHARACTERS = 2**20

#: Seconds for which other changes are stored before completions are stored again. A completion that
#: waits for a thousand failures is lost if the process dies, and its job runs twice.
CHANGES_WINDOW = 0.1

#: Seconds until an outcome is tried again after the server stopped its statement. The pause doubles
#: each time, and is at least as long as the statement took, so that others are stored half of the
#: time.
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 60.0

#: The same for an outcome whose row another session has locked. Trying again costs little, and
#: nothing tells when the row is free.
FIRST_LOCKED_PAUSE = 0.1
LONGEST_LOCKED_PAUSE = 1.0


# These classes are not frozen: each job makes an object, and a frozen one takes twice as long.
@dataclass(slots=True)
class Completion:
    run: Run
    result: Any
    seconds: float
    #: For how long it was deferred the last time, because its row was locked.
    paused: float = 0.0

    @property
    def runs(self) -> list[Run]:
        return [self.run]


@dataclass(slots=True)
class RunFailure:
    """A run that failed, and what its log line says."""

    run: Run
    failure: Failure
    outcome: AttemptOutcome
    seconds: float
    cause: BaseException | None


@dataclass(slots=True)
class StateChange:
    """Another change of the state of some runs, and the operation that stores it."""

    runs: list[Run]
    write: Callable[[], object]
    #: Whether it is stored before the others, because other workers wait to run its jobs.
    comes_first: bool = False
    #: Whether the operation skips runs whose claim is gone, or whose rows another session has
    #: locked.
    in_part: bool = False
    #: The failure of its one run, if it may be stored together with others.
    failed: RunFailure | None = None
    #: For how long it was deferred the last time, as in `Completion`.
    paused: float = 0.0


@dataclass(order=True, slots=True)
class Deferred:
    """An outcome that is tried again later, by itself, while others are stored."""

    due_at: float
    pause: float = field(compare=False)
    item: Completion | StateChange = field(compare=False)
    #: Whether another session has locked its row. Then it may be stored together with others again.
    is_locked: bool = field(default=False, compare=False)


class StatementStopped(Exception):
    """The server stopped a statement but still responds: fewer outcomes at once may succeed."""

    def __init__(self, error: Exception, seconds: float) -> None:
        super().__init__(str(error))
        self.error, self.seconds = error, seconds


class Completer:
    """A thread that stores outcomes.

    It keeps each outcome until it is stored, and tries again while the database is away.
    """

    def __init__(
        self,
        worker_id: str,
        in_flight: JobsInFlight,
        job_log: JobLog,
        on_slot_free: Callable[[float], None],
        on_room: Callable[[Collection[str]], None],
    ) -> None:
        self._worker_id = worker_id
        self._in_flight = in_flight
        self._job_log = job_log
        self._on_slot_free = on_slot_free
        self._on_room = on_room
        self._items: deque[Completion | StateChange] = deque()
        # The thread sorts the items into these.
        self._completions: deque[Completion] = deque()
        self._changes: deque[StateChange] = deque()
        self._deferred: list[Deferred] = []
        # Jobs whose rows another session had locked when their outcome was tried last.
        self._locked: set[Run] = set()
        self._completions_together, self._failures_together = GroupSize(), GroupSize()
        self._is_away = False
        # The error of the last write that was rejected.
        self._rejection: Exception | None = None
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._asleep = True
        self._closing = threading.Event()
        work = database.passing_by()(self._work)
        self._thread = threading.Thread(target=work, name="ojs-completer", daemon=True)
        self._thread.start()

    def handler_ended(
        self, run: Run, result: Any, error: BaseException | None, committed: bool
    ) -> None:
        """Store how a handler ended (called on its thread); see `handler_call.OnEnd`."""
        seconds = time.monotonic() - run.started
        self._in_flight.release_slot()
        if committed:
            if error is not None:
                self._job_log.failed_after_commit(run, error)
            self._job_log.completed([(run, seconds)])
            self._add(StateChange([run], lambda: self._committed(run, seconds)))
        elif error is not None:
            failure = Failure.from_exception(
                error,
                backtrace=settings().backtraces,
                keep_class=run.handler.keeps_exception_class,
            )
            is_out_of_memory = isinstance(error, MemoryError)
            others = len(self._in_flight.in_phase(Phase.RUNNING)) if is_out_of_memory else 0
            is_conflict = database.is_conflict(error)
            self.fail(
                run, failure, seconds=seconds, cause=error, others=others, is_conflict=is_conflict
            )
        elif isinstance(result, Suspended):
            self._add(StateChange([run], result.store))
        else:
            self._add(Completion(run, result, seconds))
        self._on_slot_free(seconds)

    def fail(
        self,
        run: Run,
        failure: Failure,
        *,
        outcome: AttemptOutcome = AttemptOutcome.FAILED,
        seconds: float = 0.0,
        cause: BaseException | None = None,
        others: int = 0,
        is_conflict: bool = False,
    ) -> None:
        """Fail a run by its retry policy; without spending an attempt if others may be the cause.

        `others` is the number of jobs beside it that may be the cause. `is_conflict` says that a
        conflict with another transaction is the cause; a limited number of these spend no attempt.
        """

        def write() -> None:
            if others:
                job = fail.fail_beside_others(run.job.id, failure, others=others, claim=run.claim)
            elif is_conflict:
                job = fail.fail_by_conflict(run.job.id, failure, claim=run.claim)
            else:
                job = fail.fail(run.job.id, failure, claim=run.claim, outcome=outcome)
            self._job_log.failed(run, failure, job, seconds, cause)

        is_alone = others or is_conflict or failure.rate_limit_until is not None
        failed = None if is_alone else RunFailure(run, failure, outcome, seconds, cause)
        self._add(StateChange([run], write, failed=failed))

    def hold(self, runs: list[Run], failure: Failure) -> None:
        """Hold back jobs of types that have no handler here."""
        if runs:
            claims = [(run.job.id, run.job.run) for run in runs]
            delay = settings().unknown_type_delay
            self._add(
                StateChange(
                    runs,
                    lambda: fail.postpone_batch(self._worker_id, claims, failure, delay=delay),
                    in_part=True,
                )
            )

    def requeue(self, run: Run, failure: Failure) -> None:
        """Make a job available again whose handler was stopped, without spending an attempt."""
        self._add(
            StateChange(
                [run],
                lambda: fail.requeue(
                    run.job.id, failure, claim=run.claim, outcome=AttemptOutcome.SHUTDOWN
                ),
            )
        )

    def give_back(self, runs: list[Run]) -> None:
        """Make jobs available again that never started."""
        if runs:
            claims = [(run.job.id, run.job.run) for run in runs]
            self._add(
                StateChange(
                    runs,
                    lambda: rescue.give_back(claims, worker_id=self._worker_id),
                    comes_first=True,
                    in_part=True,
                )
            )

    def settle_lost(self, run: Run) -> None:
        """Log a run that lost its claim, or finish it if its own completion ended the claim."""
        self._add(StateChange([run], lambda: self._lost([run])))

    @property
    def is_away(self) -> bool:
        """Whether the thread repeats a write because the database is away."""
        return self._is_away

    def close(self, timeout: float) -> bool:
        """Store what is left and end. Return whether all of it was stored within the timeout."""
        self._closing.set()
        self._wake.put(None)
        self._thread.join(timeout)
        if not self._thread.is_alive():
            return True
        # `_deferred` is not used, because it lacks the outcome that is being tried at this moment.
        if locked := sorted(self._locked.copy(), key=lambda run: run.job.id):
            self._job_log.locked(locked, is_last=True)
        return False

    def _add(self, item: Completion | StateChange) -> None:
        self._items.append(item)
        if self._asleep:
            self._asleep = False
            self._wake.put(None)

    def _work(self) -> None:
        try:
            while True:
                self._asleep = True
                if not (self._items or self._completions or self._changes):
                    if self._closing.is_set() and not self._deferred:
                        return
                    self._wait()
                self._asleep = False
                is_behind = self._completions or len(self._items) >= MAX_BATCH
                if not is_behind and not self._closing.is_set():
                    time.sleep(BATCH_WINDOW)
                self._drain()
        finally:
            connections.close_all()

    def _wait(self) -> None:
        """Wait for an outcome, or until a deferred one is due."""
        left = max(0.0, self._deferred[0].due_at - time.monotonic()) if self._deferred else None
        with suppress(queue.Empty):
            self._wake.get(timeout=left)

    def _drain(self) -> None:
        """Store completions that wait, other changes for a short time, and one deferred outcome."""
        self._take_locked()
        while self._items and len(self._completions) < MAX_BATCH:
            item = self._items.popleft()
            if isinstance(item, Completion):
                self._completions.append(item)
            elif item.comes_first:
                self._changes.appendleft(item)
            else:
                self._changes.append(item)
        ended = self._store_completions() if self._completions else []
        began = time.monotonic()
        while self._changes:
            ended += self._store_changes()
            if time.monotonic() - began >= CHANGES_WINDOW:
                break
        if self._deferred and time.monotonic() >= self._deferred[0].due_at:
            deferred = heapq.heappop(self._deferred)
            ended += self._store_one(deferred.item, deferred.pause)
        limited = next_starts.wait_for_ends
        if limited and (queues := {run.job.queue for run in ended if run.job.queue in limited}):
            self._on_room(queues)

    def _store_completions(self) -> list[Run]:
        """Store the first completions together. Return the runs that are done."""
        size = min(len(self._completions), self._completions_together.within(MAX_BATCH))
        group = [self._completions.popleft() for _ in range(size)]
        if size == 1:
            return self._store_one(group[0])
        runs = [item.run for item in group]
        missing: list[Run] = []
        try:
            # The hook of an extension may need a row that another session has locked.
            with suppress(RowLocked):
                if self._store(lambda: missing.extend(self._complete(group)), runs):
                    return self._done(group, missing)
        except StatementStopped as stopped:
            self._job_log.group_stopped(size, stopped.error)
            self._completions_together.reduce(size, stopped.seconds)
            self._completions.extendleft(reversed(group))
            return []
        # One of them cannot be stored. Each is now stored by itself, so that only that one fails.
        return [run for item in group for run in self._store_one(item)]

    def _store_changes(self) -> list[Run]:
        """Store the first change, or the failures at the front. Return the runs that are done."""
        failed = self._failures_in_front()
        if len(failed) < 2:
            return self._store_one(self._changes.popleft())
        changes = [self._changes.popleft() for _ in failed]
        runs = [each.run for each in failed]
        missing: list[Run] = []
        try:
            with suppress(RowLocked):
                if self._store(lambda: missing.extend(self._fail(failed)), runs):
                    return self._done(changes, missing)
            # One of them cannot be stored. Each is stored by itself, so that only that one fails.
            changes = [replace(change, failed=None) for change in changes]
        except StatementStopped as stopped:
            self._job_log.group_stopped(len(failed), stopped.error)
            self._failures_together.reduce(len(failed), stopped.seconds)
        self._changes.extendleft(reversed(changes))
        return []

    def _store_one(self, item: Completion | StateChange, paused: float = 0.0) -> list[Run]:
        """Store an outcome by itself, or defer it. Return the runs that are done.

        `paused` is for how long it was deferred before.
        """
        runs = item.runs
        missing: list[Run] = []
        try:
            if isinstance(item, Completion):
                if not self._store(lambda: missing.extend(self._complete([item])), runs):
                    self._store(partial(self._fail_rejected, item), runs)
            else:
                self._store(item.write, runs)
        except RowLocked:
            self._defer_locked([(item, runs)])
            return []
        except StatementStopped as stopped:
            self._defer(item, runs, stopped, paused)
            return []
        if isinstance(item, StateChange) and item.in_part:
            return self._done([item], runs, may_be_gone=True)
        return self._done([item], missing)

    def _done(
        self,
        items: Sequence[Completion | StateChange],
        missing: Sequence[Run],
        *,
        may_be_gone: bool = False,
    ) -> list[Run]:
        """Finish items that were written, except for the runs that are `missing`.

        If this worker still holds such a run, another session has locked its row, and it is
        deferred. Return the runs that are done.
        """
        try:
            locked = self._still_held(missing)
            if not may_be_gone:
                self._lost([run for run in missing if run not in locked])
        except Error:
            # All of them count as held: they are written again later, and checked again then.
            locked = set(missing)
        if locked:
            left = [(item, [run for run in item.runs if run in locked]) for item in items]
            self._defer_locked([(item, runs) for item, runs in left if runs])
        done = [run for item in items for run in item.runs if run not in locked]
        self._locked.difference_update(done)
        self._in_flight.remove(done)
        return done

    def _still_held(self, runs: Sequence[Run]) -> set[Run]:
        if not runs:
            return set()
        claims = [(run.job.id, run.job.run) for run in runs]
        held = transitions.still_held(self._worker_id, claims)
        return {run for run in runs if (run.job.id, run.job.run) in held}

    def _defer_locked(self, items: Sequence[tuple[Completion | StateChange, list[Run]]]) -> None:
        """Try these items again in a moment, and store others until then."""
        now = time.monotonic()
        if new := [run for item, runs in items if not item.paused for run in runs]:
            self._job_log.locked(new)
        for item, runs in items:
            self._locked.update(runs)
            pause = min(max(item.paused * 2, FIRST_LOCKED_PAUSE), LONGEST_LOCKED_PAUSE)
            if isinstance(item, Completion):
                item.paused = pause
            else:
                item = replace(item, runs=runs, paused=pause)
            heapq.heappush(self._deferred, Deferred(now + pause, pause, item, is_locked=True))

    def _take_locked(self) -> None:
        """Put the locked outcomes that are due back among the others."""
        now = time.monotonic()
        while self._deferred and self._deferred[0].is_locked and self._deferred[0].due_at <= now:
            item = heapq.heappop(self._deferred).item
            if isinstance(item, Completion):
                self._completions.append(item)
            else:
                self._changes.append(item)

    def _defer(
        self,
        item: Completion | StateChange,
        runs: list[Run],
        stopped: StatementStopped,
        paused: float,
    ) -> None:
        self._locked.difference_update(runs)
        pause = min(max(paused * 2, stopped.seconds, FIRST_PAUSE), LONGEST_PAUSE)
        heapq.heappush(self._deferred, Deferred(time.monotonic() + pause, pause, item))
        self._job_log.outcome_deferred(runs[0], pause, stopped.error)
        if not paused:
            # This outcome may be the reason why the statement of its group was stopped.
            is_completion = isinstance(item, Completion)
            (self._completions_together if is_completion else self._failures_together).lift()

    def _failures_in_front(self) -> list[RunFailure]:
        found: list[RunFailure] = []
        room = MAX_FAILURE_CHARACTERS
        most = self._failures_together.within(MAX_FAILURES)
        for change in self._changes:
            if change.failed is None or len(found) == most or room <= 0:
                break
            found.append(change.failed)
            room -= change.failed.failure.characters
        return found

    def _fail(self, failed: list[RunFailure]) -> list[Run]:
        """Store failures. Return the runs that were not stored; see `_done`."""
        stored = fail.fail_batch(
            self._worker_id,
            [(each.run.job, each.failure, each.outcome) for each in failed],
        )
        missing: list[Run] = []
        for each in failed:
            job = stored.get((each.run.job.id, each.run.job.run))
            if job is None:
                missing.append(each.run)
            else:
                self._job_log.failed(each.run, each.failure, job, each.seconds, each.cause)
        return missing

    def _complete(self, completions: list[Completion]) -> list[Run]:
        """Store completions. Return the runs that were not stored; see `_done`."""
        jobs: dict[UUID, Claimed] = {}
        seconds: dict[UUID, float] = {}
        finished: list[tuple[UUID, int, Any]] = []
        for item in completions:
            job = item.run.job
            jobs[job.id] = job
            seconds[job.id] = item.seconds
            finished.append((job.id, job.run, item.result))
        stored = ack.ack_batch(self._worker_id, finished, Known(jobs=jobs, seconds=seconds))
        missing: list[Run] = []
        if len(stored) < len(completions):
            missing = [item.run for item in completions if item.run.job.id not in stored]
            completions = [item for item in completions if item.run.job.id in stored]
        self._job_log.completed([(item.run, item.seconds) for item in completions])
        return missing

    def _committed(self, run: Run, seconds: float) -> None:
        """Finish a run that has committed its own ACK.

        What extensions do after a commit is done here, so that it does not use up the time of the
        handler.
        """
        transitions.follow_up_ack(run.job, seconds)

    def _lost(self, runs: Sequence[Run]) -> None:
        """Finish runs whose jobs were no longer their own when their outcomes were to be stored.

        If the reply to a commit did not arrive, only a completion is recognised: a failure counts
        as a lost claim.
        """
        completed = self._completed([run for run in runs if not run.is_committed])
        for run in runs:
            if run.is_committed:
                # The run was stopped in a function of on_commit, because it took too long or the
                # worker stops. The job was completed before that.
                self._job_log.stopped_after_commit(run)
            elif run not in completed:
                self._job_log.claim_lost(run)
                continue
            seconds = time.monotonic() - run.started
            self._job_log.completed([(run, seconds)])
            self._add(StateChange([run], partial(self._committed, run, seconds)))

    def _completed(self, runs: Sequence[Run]) -> set[Run]:
        """Return the runs that completed their jobs: the reply to the commit did not arrive."""
        if not runs:
            return set()
        completed = Job.primary.filter(
            pk__in=[run.job.id for run in runs], state=State.COMPLETED, worker_id=self._worker_id
        )
        claims = set(completed.values_list("pk", "run"))
        return {run for run in runs if (run.job.id, run.job.run) in claims}

    def _fail_rejected(self, item: Completion) -> None:
        error = self._rejection
        said = "The database rejected the result"
        if (name := getattr(error, UNDONE_BY, None)) is not None:
            # The handler has had its effects, which another run would repeat.
            said = f"The extension {name} failed when the completion was stored"
            if isinstance(error, OJSError):  # It is a rejection that no caller gets.
                hooks.failed(name, "rejected a completion", error)
        rejected = ResultRejected(f"{said} (the handler: {item.run.handler.place})")
        failure = Failure.from_exception(rejected)
        job = fail.fail(item.run.job.id, failure, claim=item.run.claim)
        self._job_log.failed(item.run, failure, job, item.seconds, None)

    def _store(self, write: Callable[[], object], runs: Sequence[Run] = ()) -> bool:
        """Run a write, and repeat it while the database is away. Return False if it is rejected.

        `_rejection` is then the error of the database or an extension. Raises StatementStopped, and
        RowLocked.
        """
        backoff = Backoff()
        try:
            while True:
                began = time.monotonic()
                try:
                    self._write(write, runs)
                    return True
                except RowLocked:
                    raise
                except MemoryError:
                    raise  # The process cannot go on; see `supervisor`.
                except Exception as error:
                    if database.is_stopped(error):
                        raise StatementStopped(error, time.monotonic() - began) from error
                    if database.is_unavailable(error):
                        self._is_away = True
                        self._job_log.database_away(error)
                        connections.close_all()
                        # The leases outlive a short outage. After a long one other workers may
                        # have claimed the jobs: the fence then rejects this write.
                        time.sleep(backoff.pause())
                        continue
                    # The database rejects the write, or this is a fault in the code: a retry would
                    # fail too, and the jobs behind this one wait.
                    logger.error(
                        "The outcome of %s could not be stored. A job whose outcome is lost "
                        "becomes available again when its lease expires.",
                        number_of_jobs(max(1, len(runs))),
                        exc_info=database.without_values(error),
                    )
                    # The connection may be the cause, so the next write gets another one.
                    connections.close_all()
                    self._rejection = error
                    return False
        finally:
            self._is_away = False

    def _write(self, write: Callable[[], object], runs: Sequence[Run]) -> None:
        try:
            write()
        except (Conflict, JobNotFound) as error:
            if hasattr(error, UNDONE_BY):
                raise
            # The job was cancelled, claimed by another worker after its lease expired, or pruned:
            # the outcome of this run is discarded.
            self._lost(runs)
