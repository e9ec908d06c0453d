"""Send the jobs of one outbox to one destination, in order, one relay at a time."""

import hashlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import timedelta
from typing import Final, Protocol, TypeVar

from django_ojs.extensions.events import commit_order
from django_ojs.extensions.outbox import size_limits
from django_ojs.extensions.outbox import storage as outbox
from django_ojs.extensions.outbox.breaker import Breaker, BreakerState, queue_wait
from django_ojs.extensions.outbox.destinations import Destination
from django_ojs.extensions.outbox.models import HoldsBack, OutboxEntry
from django_ojs.extensions.outbox.remote_manifest import RemoteManifest
from django_ojs.extensions.outbox.responses import DeliveryOutcome, Result, Unreachable, unreachable
from django_ojs.operations.maintenance import lease

logger = logging.getLogger("django_ojs.extensions.outbox")
T = TypeVar("T")

#: Seconds between two polls of an empty outbox, or of a lease that another relay holds.
POLL_INTERVAL: Final = 1.0
#: Seconds after which the lease is renewed, also during a request.
RENEW_INTERVAL: Final = lease.TERM.total_seconds() / 3


class SenderProtocol(Protocol):
    """The methods of a sender that a relay uses."""

    def manifest(self) -> RemoteManifest: ...
    def send(self, entries: list[OutboxEntry]) -> Result: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Relay:
    """Sends each job at least once; a duplicate of the same id counts as delivered.

    `send_next` uses the database in the thread that calls it. Requests are made in another thread,
    so that the lease can be renewed while a server is slow.
    """

    def __init__(
        self,
        destination: Destination,
        using: str,
        holder: str,
        sender: SenderProtocol,
    ) -> None:
        self.destination = destination
        self.using = using
        self.breaker = Breaker()
        self.sent_count = 0
        self.rejected_count = 0
        self._holder = holder
        self._sender = sender
        self._lease = lease_name(destination.name, using)
        self._kept_at = 0.0
        # After a failure one job is sent. Each delivery doubles the number.
        self._window = destination.batch_size
        self._thread = ThreadPoolExecutor(1, "ojs-outbox")

    def send_next(self) -> float:
        """Send the next jobs in one request. Return the seconds until it may be called again."""
        if not self._keep_lease():
            return POLL_INTERVAL
        if self.breaker.wait > 0:
            return min(self.breaker.wait, POLL_INTERVAL)
        commit_order.assign(OutboxEntry, self.using)
        entries = outbox.next_of(self.destination.name, self.using, self._window)
        if not entries:
            return POLL_INTERVAL
        try:
            manifest = self._in_request_thread(self._sender.manifest)
        except Unreachable as error:
            self._postpone(entries, unreachable(error))
            return 0.0
        fitting = self._reject_large(entries, manifest)
        if fitting:
            self._send(self._one_request(fitting, manifest))
        return 0.0

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._sender.close()
        lease.give(self._holder, self._lease)

    def abort(self) -> None:
        """End the current request, from another thread."""
        self._sender.abort()

    def _one_request(
        self, entries: list[OutboxEntry], manifest: RemoteManifest
    ) -> list[OutboxEntry]:
        if not manifest.batches or self.breaker.state is not BreakerState.CLOSED:
            return entries[:1]
        return entries[: next(size_limits.batch_sizes(entries, manifest.body_bytes))]

    def _reject_large(
        self, entries: list[OutboxEntry], manifest: RemoteManifest
    ) -> list[OutboxEntry]:
        """Reject the first jobs if they are too large; return the jobs up to the next such one."""
        fitting: list[OutboxEntry] = []
        for entry in entries:
            error = size_limits.check_size(entry, manifest)
            if error is None:
                fitting.append(entry)
            elif fitting:
                break
            else:
                self._reject(entry, Result(
                    outcome=DeliveryOutcome.REJECTED, code=error.canonical or error.code,
                    message=error.message,
                ))  # fmt: skip
        return fitting

    def _send(self, entries: list[OutboxEntry]) -> bool:
        """Send jobs in one request, or one by one. Return whether none of them has to wait."""
        result = self._in_request_thread(lambda: self._sender.send(entries))
        concerned = [entry for entry in entries if result.concerns(entry)]
        if result.outcome is DeliveryOutcome.LATER and 0 < result.room < len(concerned):
            # The queue has room for some of the jobs; Retry-After says when it may have room for
            # all. This is tried only once, because another producer may fill the queue each time.
            without = concerned[result.room :]
            entries = [entry for entry in entries if entry not in without]
            result = self._in_request_thread(lambda: self._sender.send(entries))
        match result.outcome:
            case DeliveryOutcome.DELIVERED:
                self._deliver(entries)
            case DeliveryOutcome.REJECTED:
                self._reject(entries[0], result)
            case DeliveryOutcome.LATER:
                self._postpone(entries, result)
                return False
            case DeliveryOutcome.ONE_BY_ONE:
                return all(self._send([entry]) and self._keep_lease() for entry in entries)
        return True

    def _deliver(self, entries: list[OutboxEntry]) -> None:
        self.sent_count += outbox.sent([entry.pk for entry in entries], self.using)
        self.breaker.succeeded()
        self._window = min(self.destination.batch_size, self._window * 2)

    def _reject(self, entry: OutboxEntry, result: Result) -> None:
        self.rejected_count += outbox.rejected(
            entry.pk, self.using, code=result.code, message=result.message
        )
        self.breaker.succeeded()
        logger.warning(
            "%s rejected job %s (%s): %s. It is kept in the outbox.",
            self.destination.name, entry.job_id, entry.type, result.code,
        )  # fmt: skip

    def _postpone(self, entries: list[OutboxEntry], result: Result) -> None:
        """Let all jobs wait, or the first one of a queue or tenant, which holds back the others."""
        subject = self.destination.name
        first = next(filter(result.concerns, entries), None)
        if result.queue is None or first is None:
            holds_back = HoldsBack.DESTINATION
            wait = self.breaker.failed(result.retry_after)
            failures = self.breaker.failures
        else:
            entries = [first]
            holds_back = HoldsBack.QUEUE if result.tenant is None else HoldsBack.TENANT
            subject = f"{subject}, {holds_back} {result.tenant or result.queue},"
            # The server works, so jobs of the other queues are sent.
            self.breaker.succeeded()
            failures = first.attempts + 1
            wait = queue_wait(failures, result.retry_after)
        self._window = 1
        outbox.postponed(
            [entry.pk for entry in entries], self.using,
            code=result.code, message=result.message, wait=wait, holds_back=holds_back,
        )  # fmt: skip
        logger.log(
            logging.WARNING if failures in (1, 5) else logging.DEBUG,
            "%s takes no jobs now (%s); next try in %.1f s, the breaker is %s.",
            subject, result.code,
            wait / timedelta(seconds=1), self.breaker.state,
        )  # fmt: skip

    def _keep_lease(self) -> bool:
        now = time.monotonic()
        if now - self._kept_at < RENEW_INTERVAL:
            return True
        keep = lease.renew if self._kept_at else lease.take
        if keep(self._holder, self._lease):
            self._kept_at = now
            return True
        self._kept_at = 0.0
        return False

    def _in_request_thread(self, work: Callable[[], T]) -> T:
        future: Future[T] = self._thread.submit(work)
        while not wait([future], RENEW_INTERVAL).done:
            # The request goes on even if the lease is lost. Storing its result does no harm beside
            # another relay.
            self._keep_lease()
        return future.result()


def lease_name(destination: str, using: str) -> str:
    """Return the name of the lease of a destination and an outbox; it fits its column."""
    if len(using) <= 24:
        return f"outbox {destination} {using}"
    return f"outbox {hashlib.sha256(f'{destination} {using}'.encode()).hexdigest()[:48]}"
