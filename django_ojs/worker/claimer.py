"""When a worker process claims jobs and how many, and its pause while the database is away."""

import logging
import time
from collections.abc import Collection
from functools import partial

from django.db import Error, connections

from django_ojs.conf import settings
from django_ojs.operations.fetch import fetch, isolated_waiting, may_be_cut, may_find
from django_ojs.operations.workers import rescue
from django_ojs.spec.scheduling import ALL
from django_ojs.storage import claim_floors, notify
from django_ojs.storage.backoff import Backoff
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.next_starts import next_starts
from django_ojs.storage.queue_turns import Turns
from django_ojs.worker.claim_sizer import ClaimSizer
from django_ojs.worker.config import WorkerConfig
from django_ojs.worker.heartbeat import Heartbeat
from django_ojs.worker.in_flight import JobsInFlight
from django_ojs.worker.job_log import JobLog, number_of_jobs
from django_ojs.worker.process_status import MAX_ISOLATED, ProcessStatus
from django_ojs.worker.queue_selection import QueueSelection
from django_ojs.worker.sibling_claims import SiblingClaims

logger = logging.getLogger("django_ojs.worker")

#: A poll of more queues than this claims at once, because the statement that asks whether there is
#: a job would be planned for too long.
MAX_ASKED_QUEUES = 20

#: If this many polls in a row took long, the machine is not just busy: an old snapshot makes them
#: slow, and claims then use a floor.
SLOW_POLLS = 3

#: The part of the poll interval for which a claim that left no job makes a poll needless. It is
#: less than 1, because a wait may end a moment early.
FRESH = 0.9

#: Seconds between two checks whether a job is available that must run alone.
ISOLATED_CHECK_INTERVAL = 1.0

#: For this many seconds after a failed claim, it is checked whether the claim was committed after
#: all, because the server may get the statement late. The second value is the time between two
#: checks.
LOST_CLAIMS_WITHIN = 60.0
LOST_CLAIMS_INTERVAL = 5.0

#: Seconds between two checks whether a heartbeat is stored again, so that this worker may claim.
HEARTBEAT_CHECK_INTERVAL = 0.2

#: No job is claimed while this many have ended without a stored outcome, as when many fail at once.
#: Such jobs run again if the process dies, and they hold back the other workers and the next steps
#: of workflows.
MAX_UNSTORED = 1000

#: Seconds between two checks whether the number of such jobs has fallen.
UNSTORED_CHECK_INTERVAL = 0.02

#: A notification may be older than the one before it by less than this many seconds. If it is older
#: by more, the clock of the database was set back.
SET_BACK = 1.0


class Claimer:
    """Claims the jobs of one process, in the thread that calls `claim`.

    The other threads call `on_notify`, `on_connected` and `is_due`.
    """

    def __init__(
        self,
        worker_id: str,
        config: WorkerConfig,
        in_flight: JobsInFlight,
        claim_sizer: ClaimSizer,
        heartbeat: Heartbeat,
        job_log: JobLog,
        *,
        siblings: SiblingClaims,
    ) -> None:
        self._worker_id = worker_id
        self._config = config
        self._in_flight = in_flight
        self._claim_sizer = claim_sizer
        self._heartbeat = heartbeat
        self._job_log = job_log
        self._siblings = siblings
        self._queues = QueueSelection(
            config.queues, max_age=config.poll_interval.total_seconds(), due=config.once
        )
        self._turns = Turns(config.order)
        #: How many jobs it has claimed.
        self.claimed = 0
        #: Whether the last claim showed that there is no job.
        self.found_none = False
        # Whether the last claim may have left jobs.
        self._may_be_more = False
        #: When the last claim began.
        self.began_at = 0.0
        self._notified_at = 0.0
        # When the last notification was sent, by the clock of the database.
        self._sent_at = 0.0
        # How many polls in a row took long to find no job, and until when polls claim without
        # asking first.
        self._slow_polls, self._claims_until = 0, 0.0
        # Until when claims and other queries of this thread rest, while the database is away.
        self._away_until = 0.0
        self._backoff = Backoff()
        self._lost_claims_until = self._lost_claims_due = 0.0

    def claim(self, *, is_poll: bool) -> list[Claimed]:
        """Claim as many jobs as fit; none if the database is away.

        In a poll, nothing indicates that there is a job, so it asks first, which costs less than a
        claim. It does nothing if another process of the supervisor has asked lately.
        """
        self.found_none = False
        wanted = self._wanted()
        if not wanted:
            return []
        if is_poll and not self._siblings.must_claim(self._is_polled):
            return []
        self._siblings.begin()
        sent_at, self.began_at = self._sent_at, time.monotonic()
        most, left, left_none = settings().max_fetch_bytes, self._bytes_left(), False
        try:
            self._give_back_lost_claims()
            queues = self._queues.current()
            if is_poll and not self._may_find(queues):
                self._backoff.reset()
                left_none = True
                return []
            jobs = (
                fetch(
                    queues,
                    count=wanted,
                    worker_id=self._worker_id,
                    due=self._config.once,
                    isolation=self._config.isolation,
                    max_bytes=max(1, left),
                    turns=self._turns,
                    pool=self._config.pool,
                    registered=True,
                )
                if queues
                else []
            )
            self._backoff.reset()
            self.claimed += len(jobs)
            left -= sum(job.size for job in jobs)
            # A job may be left out because a hook failed for it, and more may be behind it.
            is_exhausted = not queues or self._turns.left_none
            self._may_be_more = not is_exhausted or (bool(jobs) and may_be_cut(left, most))
            unread = next_starts.unread.intersection(queues)
            self.found_none = not (jobs or unread or self._may_be_more)
            left_none = not (
                self._may_be_more
                or unread
                # A process that knows when a limited queue starts its next job may have no room
                # then, a job may have been too large for the room that was left here, and a claim
                # from a floor does not see all jobs.
                or next_starts.are_known
                or (jobs and left < settings().max_envelope_bytes)
                or claim_floors.floors.in_use
            )
            return jobs
        except MemoryError:
            raise  # The process cannot go on; see `supervisor`.
        except Exception as error:
            # The error comes from the database or from an extension. The jobs that were claimed
            # before continue.
            self.rest(error)
            self._lost_claims_until = time.monotonic() + LOST_CLAIMS_WITHIN
            self._lost_claims_due = 0.0
            return []
        finally:
            # The claim did not look at queues that got their first job after the list was read.
            began_at = min(self.began_at, self._queues.read_at)
            self._siblings.end(began_at, sent_at, left_none=left_none)

    @property
    def is_spent(self) -> bool:
        """Whether it has claimed as many jobs as the process may run."""
        return self._config.max_jobs is not None and self.claimed >= self._config.max_jobs

    def is_due(self) -> bool:
        """Whether a claim now is likely to find jobs, and there is room for them.

        A notification that came during the last claim counts, because the claim may have missed the
        job.
        """
        last = max(self.began_at, self._siblings.left_none_at)
        return (self._may_be_more or self._notified_at >= last) and self._wanted() > 0

    def longest_wait(self) -> float:
        """Return the seconds after which to call `claim` again if nothing wakes the process."""
        now, interval = time.monotonic(), self._config.poll_interval.total_seconds()
        left_none_at = self._siblings.left_none_at
        # Together, the processes of a supervisor poll once in each interval.
        timeout = min(interval, left_none_at + interval - now)
        if timeout <= 0:
            timeout = interval
        followed_at = self._notified_at + notify.INTERVAL
        if left_none_at < followed_at and now < followed_at + notify.INTERVAL * 2:
            # A producer does not send a notification for every job. One more poll finds the jobs
            # that came right after a notification.
            timeout = min(timeout, notify.INTERVAL * 1.5)
        if (away := self._away_until - now) > 0:
            timeout = min(timeout, away)
        if self._outcomes_pile_up():
            timeout = min(timeout, UNSTORED_CHECK_INTERVAL)
        if not self._heartbeat.registered:
            timeout = min(timeout, HEARTBEAT_CHECK_INTERVAL)
        if (next_start := next_starts.seconds()) is not None:
            timeout = min(timeout, next_start)
        return timeout

    def on_notify(self, queues: Collection[str] = (), sent_at: float | None = None) -> bool:
        """Note that a notification of these queues has come, and when the database sent it.

        Without a time, other queues may have new jobs too. Return whether to claim: this is not
        needed if a later claim of a sibling process has left no job.
        """
        if sent_at is None:
            self._queues.expire()
        else:
            self._queues.add(queues)
            # If the clock was set back, answers to earlier notifications prove nothing.
            is_set_back = sent_at < self._sent_at - SET_BACK
            self._sent_at = sent_at
            is_answered = partial(self._siblings.has_answered, sent_at)
            may_skip = not is_set_back and self._wanted() > 0
            if may_skip and not self._siblings.must_claim(is_answered):
                return False
        self._notified_at = time.monotonic()
        return True

    def on_connected(self) -> None:
        """Note that the listener has its connection again, so the database is back.

        A notification does not prove this, because the listener may have a connection while this
        thread gets none.
        """
        self._away_until = 0.0
        self._backoff.reset()

    def rest(self, error: Exception) -> None:
        """Note that a query of the calling thread failed: the next ones wait for a moment."""
        if isinstance(error, Error):
            self._job_log.database_away(error)
        else:
            logger.error("No job could be claimed. It will be tried again.", exc_info=error)
        connections.close_all()
        self._may_be_more = False
        self._away_until = time.monotonic() + self._backoff.pause()

    def check_isolated(self, status: ProcessStatus) -> None:
        """Tell the supervisor of jobs that this process may not claim, because they run alone."""
        if time.monotonic() < self._away_until:
            return
        if not self._siblings.may_look_for_isolated(ISOLATED_CHECK_INTERVAL):
            return
        try:
            self.note_isolated(status)
        except Error as error:
            self.rest(error)

    def note_isolated(self, status: ProcessStatus) -> None:
        """Store in the status of the process how many jobs wait that must run alone."""
        queues = None if ALL in self._config.queues else self._config.queues
        found = isolated_waiting(queues, limit=MAX_ISOLATED, pool=self._config.pool)
        status.note_isolated(found)

    def _wanted(self) -> int:
        """Return how many jobs fit now; 0 while none may be claimed."""
        wanted = self._claim_sizer.claim_size(self._in_flight.busy)
        if self._config.max_jobs is not None:
            wanted = min(wanted, self._config.max_jobs - self.claimed)
        if (
            wanted <= 0
            or not self._heartbeat.registered
            or self._outcomes_pile_up()
            or time.monotonic() < self._away_until
        ):
            return 0
        if self._in_flight.busy >= self._claim_sizer.slots and self._bytes_left() <= 0:
            # Jobs that wait for a slot would only take memory. A job for a free slot is claimed
            # even beyond the limit.
            return 0
        return wanted

    def _bytes_left(self) -> int:
        """Return how many bytes of payload may be claimed beside those of the jobs in flight."""
        return settings().max_fetch_bytes - self._in_flight.bytes

    def _outcomes_pile_up(self) -> bool:
        return self._in_flight.unstored >= MAX_UNSTORED

    def _may_find(self, queues: Collection[str]) -> bool:
        """Return whether to claim in a poll, which usually finds nothing."""
        began = time.monotonic()
        if len(queues) > MAX_ASKED_QUEUES or began < self._claims_until:
            return True
        if may_find(tuple(queues)):
            return True
        now = time.monotonic()
        self._slow_polls = self._slow_polls + 1 if now - began >= claim_floors.SLOW else 0
        if self._slow_polls == SLOW_POLLS:
            self._slow_polls, self._claims_until = 0, now + claim_floors.LONGEST
        # So there is no job that must run alone, either.
        self._siblings.found_no_isolated()
        return False

    def _is_polled(self) -> bool:
        """Whether a claim has left no job, so lately that this process need not poll.

        A poll that is due for lost claims is needed: no other process gives back their jobs.
        """
        if self._lost_claims_due <= time.monotonic() < self._lost_claims_until:
            return False
        interval = self._config.poll_interval.total_seconds()
        since = max(time.monotonic() - interval * FRESH, self._notified_at + notify.INTERVAL)
        return self._siblings.left_none_at >= since

    def _give_back_lost_claims(self) -> None:
        """Make jobs available again whose claim was committed though its response was lost.

        They would stay reserved until their leases expire. The claiming thread calls this, so
        that no claim is under way.
        """
        now = time.monotonic()
        if now >= self._lost_claims_until or now < self._lost_claims_due:
            return
        known = [(run.job.id, run.job.run) for run in self._in_flight.all()]
        count = rescue.give_back_unknown(known, worker_id=self._worker_id)
        self._lost_claims_due = now + LOST_CLAIMS_INTERVAL
        if count:
            logger.info(
                "Available again: %s that this worker had claimed when it lost its connection.",
                number_of_jobs(count),
            )
