"""The relays of a process: a thread for each destination and outbox."""

import logging
import threading
import time
from collections.abc import Collection

from django.core.exceptions import ImproperlyConfigured
from django.db import Error, connections

from django_ojs.conf import settings
from django_ojs.operations.enqueue import outbox
from django_ojs.outbox.relay import POLL, Relay

logger = logging.getLogger("django_ojs.outbox")

#: A request that is on its way gets this long to end when the process does.
LAST_REQUEST = 5.0
#: And this long to note what became of it.
LAST_MOMENT = 2.0


def relays(holder: str, names: Collection[str] | None = None) -> list[Relay]:
    """Make the relays of all destinations, or of some. Raises ImproperlyConfigured."""
    wanted = [each for each in settings().outbox if names is None or each.name in names]
    if not wanted:
        return []
    try:
        from django_ojs.outbox.sender import Sender
    except ImportError as error:
        raise ImproperlyConfigured(
            "OJS['OUTBOX'] has destinations, and httpx is not installed: install "
            "django-ojs[outbox]."
        ) from error
    return [
        Relay(destination, using, f"{holder} {destination.name}", Sender(destination))
        for destination in wanted
        for using in outbox.aliases()
    ]


class Relays:
    """Runs relays, each in a thread of its own, until it is closed."""

    def __init__(self, found: Collection[Relay]) -> None:
        self._stop = threading.Event()
        self._relays = list(found)
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
        """Let each end the request it is at, and leave its lease.

        Who is kept waiting by a server hangs up: its job is sent again by the next.
        """
        self._stop.set()
        if not self._join(LAST_REQUEST):
            for relay in self._relays:
                relay.hang_up()
            self._join(LAST_MOMENT)

    def _join(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self, relay: Relay) -> None:
        pause = 0.0
        try:
            while not self._stop.wait(pause):
                pause = _turn(relay)
            relay.close()
        except Error:
            logger.debug("The lease of a relay was not given back; it ends by itself.")
        finally:
            connections.close_all()


def _turn(relay: Relay) -> float:
    try:
        return relay.turn()
    except Error as error:
        logger.warning("The outbox cannot be read (%s); it is tried again.", type(error).__name__)
        connections.close_all()
    except Exception:
        # What is wrong with one job must not end the thread that all others wait for.
        logger.exception("A turn of the relay failed; it will be tried again.")
    return POLL
