"""Bounded queues over HTTP (ojs-backpressure §5.2, §7): waiting for room, and the headers."""

import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import partial
from typing import Final

from django.http import HttpRequest

from django_ojs.enqueue_options import full_policy
from django_ojs.extensions.backpressure.operations import bound_check
from django_ojs.http import long_poll
from django_ojs.spec.errors import InvalidRequest, QueueFull
from django_ojs.spec.full_policy import FullPolicy, WaitPolicy

HEADER: Final = "OJS-Block-Timeout"
_META: Final = "HTTP_OJS_BLOCK_TIMEOUT"
#: The longest wait, in seconds: proxies cut connections that are silent for a minute.
LONGEST_BLOCK: Final = 50

# Up to 100 digits are read, and a number above LONGEST_BLOCK counts as LONGEST_BLOCK.
_SECONDS: Final = re.compile(r"[0-9]{1,100}").fullmatch


def policy_of(request: HttpRequest, types: Collection[str]) -> FullPolicy | None:
    """Return what a push of jobs of these types does if the queue is full.

    Raises InvalidRequest.

    The header says how long to wait for room. Without it, the `on_full` applies that the handlers
    of the types declare; where they differ, none holds. A request that finds HTTP_WAITING_REQUESTS
    others waiting in this process does not wait.
    """
    given = request.META.get(_META)
    if given is not None:
        if not _SECONDS(given.strip()):
            raise InvalidRequest.of(HEADER, "must be a whole number of seconds, 0 or more")
        return FullPolicy(wait=_waiting(request, float(given), always=False))
    first, *others = map(full_policy, types)
    policy = first.note(FullPolicy) if first.notes else None
    for other in others:
        if other != first:
            return None
    if policy is None or policy.wait is None:
        return policy
    return replace(policy, wait=_waiting(request, policy.wait.seconds, always=True))


def _waiting(request: HttpRequest, seconds: float, *, always: bool) -> WaitPolicy:
    return WaitPolicy(
        seconds=min(seconds, LONGEST_BLOCK),
        always=always,
        slot=long_poll.slot,
        is_over=partial(long_poll.client_is_gone, request.META),
    )


def warning(queues: Iterable[str]) -> dict[str, str]:
    """Return the headers of a success (§7.3).

    They describe the fullest of these queues that are above their warning thresholds now. If none
    is, there are no headers.
    """
    found = [
        pair for queue in sorted(set(queues)) if (pair := bound_check.pressure(queue)) is not None
    ]
    if not found:
        return {}
    load, bound = max(found, key=lambda pair: pair[0].pressure(pair[1]))
    # The pressure may be above 1, because lowering a bound discards no jobs.
    share = min(1.0, load.pressure(bound))
    return {**_headers(*load.nearest(bound)), "X-OJS-Queue-Pressure": f"{share:.4g}"}


def rejection(full: QueueFull) -> dict[str, str]:
    """Return the headers of a 429 of a full queue (§7.2).

    Retry-After is absent for jobs that never fit.
    """
    headers = _headers(full.depth, full.bound)
    return {"Retry-After": str(full.retry_after), **headers} if full.retryable else headers


def _headers(depth: int, bound: int) -> dict[str, str]:
    return {"X-OJS-Queue-Depth": str(depth), "X-OJS-Queue-Bound": str(bound)}
