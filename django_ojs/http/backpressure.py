"""Bounded queues over HTTP (ojs-backpressure §5.2, §7): waiting for room, and how full it is."""

import re
from collections.abc import Iterable
from typing import Final

from django.http import HttpRequest

from django_ojs.http import long_poll
from django_ojs.operations.backpressure import bounds
from django_ojs.operations.backpressure.bounds import Patience
from django_ojs.spec.errors import InvalidRequest, QueueFull
from django_ojs.storage.bounds import nearer

HEADER: Final = "OJS-Block-Timeout"
#: Who asks for more waits this long: proxies cut what is silent for a minute.
LONGEST_BLOCK: Final = 50

_SECONDS: Final = re.compile(r"[0-9]{1,9}").fullmatch


def patience(request: HttpRequest) -> Patience:
    """Return how long a request may wait for room. Raises InvalidRequest.

    One that finds HTTP_WAITING_REQUESTS others waiting in this process is refused at once.
    """
    given = request.headers.get(HEADER, "0").strip()
    if not _SECONDS(given):
        raise InvalidRequest.of(HEADER, "must be a whole number of seconds, 0 or more")
    return Patience(seconds=min(int(given), LONGEST_BLOCK), place=long_poll.place)


def warning(queues: Iterable[str]) -> dict[str, str]:
    """Return the headers of a success (§7.3): of the fullest of these queues that is above its
    warning threshold, as it is now; none where there is no such queue.
    """
    found = [one for queue in sorted(set(queues)) if (one := bounds.pressure(queue)) is not None]
    if not found:
        return {}
    load, bound = max(found, key=lambda one: one[0].pressure(one[1]))
    depth, most = nearer(load, bound)
    # It may be above: a bound that was lowered throws nothing away.
    share = min(1.0, load.pressure(bound))
    return {**_where(depth, most), "X-OJS-Queue-Pressure": f"{share:.4g}"}


def refusal(full: QueueFull) -> dict[str, str]:
    """Return the headers of a 429 beside Retry-After (§7.2)."""
    return _where(full.depth, full.bound)


def _where(depth: int, bound: int) -> dict[str, str]:
    return {"X-OJS-Queue-Depth": str(depth), "X-OJS-Queue-Bound": str(bound)}
