"""The limits of a queue, and limit keys with their overrides (ojs-rate-limiting §7.2 and §10)."""

from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest

from django_ojs.extensions.limits import limit_keys
from django_ojs.extensions.limits.limit_key_use import KeyStatus
from django_ojs.extensions.limits.limit_keys import MOST_WAITING
from django_ojs.extensions.limits.rate_limit import Rate, RateLimit
from django_ojs.extensions.limits.rate_limit_policy import check_key
from django_ojs.http import fields
from django_ojs.http.responses import timestamps
from django_ojs.http.views.admin.base import AdminView
from django_ojs.http.views.admin.queues import AdminQueueView, detail
from django_ojs.operations import queues
from django_ojs.spec.errors import NotFound
from django_ojs.spec.scopes import Scope


class QueueRateLimit(AdminQueueView):
    """Replace the limits of a queue (ojs-rate-limiting §7.2); an unknown queue is created."""

    needs = {"PUT": Scope.ADMIN}

    def put(self, request: HttpRequest, name: str) -> dict[str, Any]:
        rates = dict(self.body())
        changes = {"concurrency": rates.pop("concurrency", None), "rate_limit": rates or None}
        return detail(queues.configure(self.new_queue(name), changes))


class RateLimits(AdminView):
    """The limit keys that have jobs or a stored row (§10.3).

    The jobs of a key may be in any queue, so credentials for some queues do not suffice.
    """

    needs = {"GET": Scope.READ}

    def get(self, request: HttpRequest) -> dict[str, Any]:
        self.access.check_all_queues()
        page = limit_keys.listing(self.wanted())
        return self.listed(map(_render, page.rows), page.count())


class RateLimitDetail(AdminView):
    """One limit key (§10.1), and its override (§10.2)."""

    needs = {"GET": Scope.READ, "PUT": Scope.ADMIN, "DELETE": Scope.ADMIN}

    def get(self, request: HttpRequest, key: str) -> dict[str, Any]:
        self.access.check_all_queues()
        return _render(limit_keys.get(key))

    def put(self, request: HttpRequest, key: str) -> dict[str, Any]:
        """Override limits of the key; a body without limits ends the override."""
        self.access.check_all_queues()
        limits = self.body()
        until = fields.timestamp(limits, "expires_at")
        limits.pop("expires_at", None)
        limit_keys.override(key, limits, until=until)
        return _render(limit_keys.get(key))

    def delete(self, request: HttpRequest, key: str) -> dict[str, Any]:
        """End the override of the key."""
        self.access.check_all_queues()
        check_key(key, "key")
        if not limit_keys.remove_override(key):
            details = {"resource_type": "rate_limit", "resource_id": key}
            raise NotFound("This limit key has no override.", details=details)
        return {"deleted": True, "key": key}


def _render(found: KeyStatus) -> dict[str, Any]:
    use, policy = found.use, found.policy
    concurrency: dict[str, Any] = {"limit": use.limit.concurrency, "active": use.active}
    if use.limit.concurrency is not None:
        concurrency["available"] = max(0, use.limit.concurrency - use.active)
    out: dict[str, Any] = {
        "key": found.key,
        "concurrency": concurrency,
        "waiting_count": min(found.waiting, MOST_WAITING),
        "paused": use.is_paused,
        "override": None,
    }
    if use.override and found.row is not None:
        out["override"] = {**use.override, **timestamps(expires_at=found.row.override_until)}
    if found.waiting > MOST_WAITING:
        out["waiting_count_capped"] = True
    if use.is_paused:
        out |= timestamps(paused_until=_moment(use.paused_until))
    if policy.get("rate"):
        given = policy["rate"]
        rate = Rate.of(given["limit"], given["period"])
        moves_at = use.starts.window_moves_at(rate, use.now)
        out["rate"] = {
            "limit": given["limit"],
            "period": given["period"],
            "current_count": use.starts.in_window(rate, use.now),
            **timestamps(window_resets_at=None if moves_at is None else _moment(moves_at)),
        }
    if policy.get("throttle"):
        given = policy["throttle"]
        throttle = RateLimit(throttles=(Rate.of(given["limit"], given["period"]),))
        out["throttle"] = {
            "limit": given["limit"],
            "period": given["period"],
            **timestamps(next_allowed_at=_moment(use.starts.next_at(throttle, use.now))),
        }
    if policy.get("max_per_second"):
        out["max_per_second"] = policy["max_per_second"]
    return out


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
