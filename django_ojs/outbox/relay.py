"""Sends what one outbox holds for one destination: in order, one relay at a time."""

import hashlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import timedelta
from typing import Final, Protocol, TypeVar

from django_ojs.models import OutboxEntry
from django_ojs.operations.maintenance import lease
from django_ojs.outbox import sizes
from django_ojs.outbox.breaker import Breaker, State
from django_ojs.outbox.manifest import Manifest
from django_ojs.outbox.responses import Answer, Unreachable, Verdict, unreachable
from django_ojs.spec.destinations import Destination
from django_ojs.storage import outbox

logger = logging.getLogger("django_ojs.outbox")
T = TypeVar("T")

#: Between two looks at an outbox that had nothing, or at a lease that another one has.
POLL: Final = 1.0
#: The lease is taken again this often while an answer is waited for.
KEEP: Final = lease.TERM.total_seconds() / 3


class Sends(Protocol):
    """What a relay needs of a sender."""

    def manifest(self) -> Manifest: ...
    def send(self, entries: list[OutboxEntry]) -> Answer: ...
    def hang_up(self) -> None: ...
    def close(self) -> None: ...


class Relay:
    """One destination's. It sends each job at least once; a repeated id counts as arrived.

    The database belongs to the thread that calls `turn`; requests are made in another one, so that
    the lease is kept while a server is slow.
    """

    def __init__(
        self,
        destination: Destination,
        using: str,
        holder: str,
        sender: Sends,
        *,
        breaker: Breaker | None = None,
    ) -> None:
        self.destination = destination
        self.using = using
        self.breaker = breaker or Breaker()
        self.arrived = 0
        self.refusals = 0
        self._holder = holder
        self._sender = sender
        self._lease = lease_name(destination.name, using)
        self._kept_at = 0.0
        # After a failure one job goes first, then twice as many each time.
        self._window = destination.batch_size
        self._thread = ThreadPoolExecutor(1, "ojs-outbox")

    def turn(self) -> float:
        """Send what is next, one request's worth. Return seconds until there may be more to do."""
        if not self._keep_lease():
            return POLL
        if self.breaker.wait > 0:
            return min(self.breaker.wait, POLL)
        outbox.assign_positions(self.using)
        entries = outbox.next_of(self.destination.name, self.using, self._window)
        if not entries:
            return POLL
        try:
            manifest = self._elsewhere(self._sender.manifest)
        except Unreachable as error:
            self._postpone(entries, unreachable(error))
            return 0.0
        fitting = self._refuse_large(entries, manifest)
        if fitting:
            self._send(self._request(fitting, manifest))
        return 0.0

    def close(self) -> None:
        """Leave the lease to the next, and the connection."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._sender.close()
        lease.give(self._holder, self._lease)

    def hang_up(self) -> None:
        """End the request that is on its way, from another thread."""
        self._sender.hang_up()

    def _request(self, entries: list[OutboxEntry], manifest: Manifest) -> list[OutboxEntry]:
        if not manifest.batches or self.breaker.state is not State.CLOSED:
            return entries[:1]
        return entries[: next(sizes.batches(entries, manifest.body_bytes))]

    def _refuse_large(self, entries: list[OutboxEntry], manifest: Manifest) -> list[OutboxEntry]:
        """Refuse the first ones that are too large; return those up to the next such."""
        fitting: list[OutboxEntry] = []
        for entry in entries:
            error = sizes.judge(entry, manifest)
            if error is None:
                fitting.append(entry)
            elif fitting:
                break
            else:
                self._refuse(entry, Answer(
                    verdict=Verdict.REFUSED, code=error.canonical or error.code,
                    message=error.message,
                ))  # fmt: skip
        return fitting

    def _send(self, entries: list[OutboxEntry]) -> None:
        answer = self._elsewhere(lambda: self._sender.send(entries))
        if answer.verdict is Verdict.LATER and 0 < answer.room < len(entries):
            # Full for so many, and not for fewer: what it asks to wait for is room for all. Once,
            # or who fills it beside us would keep us asking.
            entries = entries[: answer.room]
            answer = self._elsewhere(lambda: self._sender.send(entries))
        match answer.verdict:
            case Verdict.DELIVERED:
                self._deliver(entries)
            case Verdict.REFUSED:
                self._refuse(entries[0], answer)
            case Verdict.LATER:
                self._postpone(entries, answer)
            case Verdict.ONE_BY_ONE:
                for entry in entries:
                    failures = self.breaker.failures
                    self._send([entry])
                    if self.breaker.failures > failures or not self._keep_lease():
                        return

    def _deliver(self, entries: list[OutboxEntry]) -> None:
        self.arrived += outbox.sent([entry.pk for entry in entries], self.using)
        self.breaker.succeeded()
        self._window = min(self.destination.batch_size, self._window * 2)

    def _refuse(self, entry: OutboxEntry, answer: Answer) -> None:
        self.refusals += outbox.refused(
            entry.pk, self.using, code=answer.code, message=answer.message
        )
        self.breaker.succeeded()
        logger.warning(
            "%s refused job %s (%s): %s. It is kept in the outbox.",
            self.destination.name, entry.job_id, entry.type, answer.code,
        )  # fmt: skip

    def _postpone(self, entries: list[OutboxEntry], answer: Answer) -> None:
        wait = self.breaker.failed(answer.retry_after)
        self._window = 1
        outbox.postponed(
            [entry.pk for entry in entries], self.using,
            code=answer.code, message=answer.message, wait=wait,
        )  # fmt: skip
        logger.log(
            logging.WARNING if self.breaker.failures in (1, 5) else logging.DEBUG,
            "%s takes no jobs now (%s); next try in %.1f s, the breaker is %s.",
            self.destination.name, answer.code,
            wait / timedelta(seconds=1), self.breaker.state,
        )  # fmt: skip

    def _keep_lease(self) -> bool:
        now = time.monotonic()
        if now - self._kept_at < KEEP:
            return True
        if lease.take(self._holder, self._lease):
            self._kept_at = now
            return True
        self._kept_at = 0.0
        return False

    def _elsewhere(self, work: Callable[[], T]) -> T:
        future: Future[T] = self._thread.submit(work)
        while not wait([future], KEEP).done:
            # Lost or not: what is on its way will be noted, which another relay does not mind.
            self._keep_lease()
        return future.result()


def lease_name(destination: str, using: str) -> str:
    """Return the name of the lease of a destination and an outbox; it fits its column."""
    if len(using) <= 24:
        return f"outbox {destination} {using}"
    return f"outbox {hashlib.sha256(f'{destination} {using}'.encode()).hexdigest()[:48]}"
