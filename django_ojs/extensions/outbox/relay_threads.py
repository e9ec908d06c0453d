"""The relays of a process: a thread for each destination and outbox."""

import logging
import threading
import time
from collections.abc import Collection

from django.core.exceptions import ImproperlyConfigured
from django.db import Error, connections

from django_ojs.conf import of
from django_ojs.extensions.outbox import operations as outbox
from django_ojs.extensions.outbox.relay import POLL_INTERVAL, Relay
from django_ojs.extensions.outbox.settings import OutboxSettings
from django_ojs.storage import database
from django_ojs.storage.backoff import Backoff

logger = logging.getLogger("django_ojs.extensions.outbox")

#: Seconds that `close` waits for current requests before it aborts them.
REQUEST_TIMEOUT = 5.0
#: Seconds that it then waits for their results to be stored.
STORE_TIMEOUT = 2.0


def relays(holder: str, names: Collection[str] | None = None) -> list[Relay]:
    """Make the relays of all destinations, or of some. Raises ImproperlyConfigured."""
    wanted = [each for each in of(OutboxSettings).outbox if names is None or each.name in names]
    if not wanted:
        return []
    try:
        from django_ojs.extensions.outbox.sender import Sender
    except ImportError as error:
        raise ImproperlyConfigured(
            "OJS['OUTBOX'] has destinations, but httpx is not installed: install "
            "django-ojs[outbox]."
        ) from error
    return [
        Relay(destination, using, f"{holder} {destination.name}", Sender(destination))
        for destination in wanted
        for using in outbox.aliases()
    ]


class Relays:
    """Runs relays, each in its own thread, until it is closed."""

    def __init__(self, relays: Collection[Relay]) -> None:
        self._stop = threading.Event()
        self._relays = list(relays)
        self._threads = [
            threading.Thread(
                target=self._work, args=[relay], name=f"ojs-relay-{relay.destination.name}",
                daemon=True,
            )
            for relay in self._relays
        ]  # fmt: skip
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Let each relay end its request and release its lease.

        A request that takes too long is aborted: the next relay sends its jobs again.
        """
        self._stop.set()
        if not self._join(REQUEST_TIMEOUT):
            for relay in self._relays:
                relay.abort()
            self._join(STORE_TIMEOUT)

    def _join(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self, relay: Relay) -> None:
        pause, is_away, backoff = 0.0, False, Backoff()
        try:
            while not self._stop.wait(pause):
                try:
                    pause, is_away = relay.send_next(), False
                    backoff.reset()
                except Error as error:
                    pause = backoff.pause()
                    # Only the first failure is a warning: further tries could fill the log.
                    logger.log(
                        logging.DEBUG if is_away else logging.WARNING,
                        "The outbox cannot be read or written to (%s); the relay tries again.",
                        type(error).__name__,
                    )
                    is_away = True
                    connections.close_all()
                except Exception as error:
                    # A fault with one job must not end the thread that sends all others.
                    pause = POLL_INTERVAL
                    logger.error(
                        "The relay failed; it tries again.", exc_info=database.without_values(error)
                    )
            relay.close()
        except Error:
            logger.debug("The lease of a relay was not released; it expires by itself.")
        finally:
            connections.close_all()
