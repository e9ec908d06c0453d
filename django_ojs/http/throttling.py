"""How many requests a caller may send: OJS["HTTP_RATE_LIMIT"] (ojs-rate-limiting §10.4).

The throttle is Django REST framework's, which keeps the times of the requests of each caller in a
cache of the project.
"""

import hashlib
import logging
import math
from typing import Any, Final

from django.core.cache import caches
from django.http.response import HttpResponseBase
from django.utils import timezone
from rest_framework.exceptions import Throttled
from rest_framework.throttling import BaseThrottle, SimpleRateThrottle

from django_ojs.conf import settings
from django_ojs.http.access import FULL_ACCESS, access_of

_PREFIX: Final = "ojs_requests_"

logger = logging.getLogger("django_ojs.http")


class CallerThrottle(SimpleRateThrottle):
    """Counts the requests of one caller: an API key, a user, or else an address.

    `history` has the times of the requests within the period, the newest first.
    """

    num_requests: int
    duration: int
    history: list[float]
    key: str

    def __init__(self, ident: str) -> None:
        # A name may have characters that a cache rejects.
        self.key = f"{_PREFIX}{hashlib.sha256(ident.encode()).hexdigest()}"
        self.cache = caches[settings().http_rate_limit_cache]
        super().__init__()
        self.history, self.now = [], self.timer()

    def timer(self) -> float:
        return timezone.now().timestamp()

    def get_rate(self) -> str:
        return settings().http_rate_limit or ""

    def get_cache_key(self, request: Any, view: Any) -> str:
        return self.key

    def allow_request(self, request: Any, view: Any) -> bool:
        """Count a request, and say whether it is within the rate.

        If the cache fails, every request is allowed, because jobs must not stop with the cache.
        """
        try:
            return super().allow_request(request, view)
        except Exception:
            logger.exception("The requests of a caller were not counted: the cache failed.")
            self.history = []
            return True

    def count(self) -> None:
        """Count a request. Raises Throttled if it is not within the rate."""
        if not self.allow_request(None, None):
            raise Throttled(self.wait())

    def read(self) -> None:
        """Read the times of the requests so far, without counting a request."""
        try:
            found = self.cache.get(self.key, [])
        except Exception:
            logger.exception("The requests of a caller were not read: the cache failed.")
            found = []
        self.now = self.timer()
        self.history = [at for at in found if at > self.now - self.duration]

    def headers(self) -> dict[str, str]:
        """Return the headers of a response."""
        # At `reset`, the oldest request leaves the period, and one more is permitted again.
        reset = self.history[-1] + self.duration if self.history else self.now
        return {
            "X-RateLimit-Limit": str(self.num_requests),
            "X-RateLimit-Remaining": str(max(0, self.num_requests - len(self.history))),
            "X-RateLimit-Reset": str(math.ceil(reset)),
        }


def of_caller(request: Any) -> CallerThrottle | None:
    """Return the throttle of the caller of an authenticated request, None without a limit."""
    if settings().http_rate_limit is None:
        return None
    access = access_of(request)
    if access is None or access is FULL_ACCESS:
        return of_address(request)
    return _kept(request, CallerThrottle(access.principal.id))


def of_address(request: Any) -> CallerThrottle:
    """Return the throttle of an address, for requests without credentials."""
    address = BaseThrottle().get_ident(request)
    return _kept(request, CallerThrottle(f"address {address}"))


def _kept(request: Any, throttle: CallerThrottle) -> CallerThrottle:
    request.ojs_throttle = throttle
    return throttle


def add_headers(request: Any, response: HttpResponseBase) -> None:
    """Add how many requests the caller has left. This does not count the request."""
    if settings().http_rate_limit is None:
        return
    throttle = getattr(request, "ojs_throttle", None)
    if throttle is None:
        throttle = of_address(request)
    if not throttle.history:
        throttle.read()
    for name, value in throttle.headers().items():
        response[name] = value
