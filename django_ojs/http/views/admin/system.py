"""Maintenance mode, and the configuration of this server (ojs-admin-api §12)."""

from datetime import timedelta
from typing import Any, Final

from rest_framework.request import Request

from django_ojs.conf import settings
from django_ojs.http import fields
from django_ojs.http.access import Scope
from django_ojs.http.views.admin.base import AdminView
from django_ojs.operations.maintenance import mode
from django_ojs.operations.maintenance.mode import Maintenance
from django_ojs.spec.retry import RetryPolicy
from django_ojs.spec.times import format_duration, format_timestamp, parse_duration
from django_ojs.storage import database
from django_ojs.version import VERSION

#: What is shown of the settings. Named one by one: a new one is not shown because it is new.
_SHOWN: Final = (
    "default_retry",
    "default_timeout",
    "visibility_timeout",
    "notify",
    "exact_integers",
    "max_queue_name_bytes",
    "max_job_type_bytes",
    "max_meta_bytes",
    "max_envelope_bytes",
    "backtraces",
    "heartbeat_interval",
    "poll_interval",
    "grace_period",
    "unknown_type_delay",
    "keep_completed",
    "keep_cancelled",
    "keep_discarded",
    "keep_rollups",
    "keep_dead_letters",
)


class AdminMaintenance(AdminView):
    """Maintenance mode."""

    needs = {"GET": Scope.OPERATOR, "POST": Scope.ADMIN}

    def get(self, request: Request) -> dict[str, Any]:
        """Say whether it is on."""
        return _maintenance(mode.status())

    def post(self, request: Request) -> dict[str, Any]:
        """Enable or disable it."""
        self.access.check_all_queues()
        data = self.body()
        fields.required(data, "enabled")
        enabled = fields.boolean(data, "enabled")
        reason = fields.string(data, "reason")
        lasts = data.get("estimated_duration")
        duration = None if lasts is None else parse_duration(lasts, "estimated_duration")
        mode.check(reason, duration)
        if not enabled:
            return _maintenance(mode.disable())
        return _maintenance(mode.enable(reason=reason, estimated_duration=duration))


class AdminSystemConfig(AdminView):
    """The configuration."""

    needs = {"GET": Scope.OPERATOR}

    def get(self, request: Request) -> dict[str, Any]:
        """Return what is not sensitive: no path, no credential, no name of a host."""
        values = settings()
        shown = {name: _plain(getattr(values, name)) for name in _SHOWN}
        return {
            "implementation": {"name": "django_ojs", "version": VERSION},
            "backend": database.connection().vendor,
            "maintenance": mode.status().enabled,
            "configuration": shown,
        }


def _maintenance(status: Maintenance) -> dict[str, Any]:
    out: dict[str, Any] = {"maintenance": status.enabled}
    if status.reason is not None:
        out["reason"] = status.reason
    if status.enabled_at is not None:
        out["enabled_at"] = format_timestamp(status.enabled_at)
    if status.estimated_end is not None:
        out["estimated_end"] = format_timestamp(status.estimated_end)
    return out


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return format_duration(value)
    return value.render() if isinstance(value, RetryPolicy) else value
