"""Maintenance mode, and the configuration of this server (ojs-admin-api §12)."""

from datetime import timedelta
from typing import Any, Final

from django.http import HttpRequest

from django_ojs.conf import settings
from django_ojs.http import fields
from django_ojs.http.responses import timestamps
from django_ojs.http.views.base import OJSView
from django_ojs.operations.maintenance import mode
from django_ojs.operations.maintenance.mode import MaintenanceStatus
from django_ojs.spec.retry_policy import RetryPolicy
from django_ojs.spec.scopes import Scope
from django_ojs.spec.times import format_duration, parse_duration
from django_ojs.storage import database
from django_ojs.version import VERSION

#: The settings in the response. They are listed, so that a new setting stays out by default.
_SHOWN: Final = (
    "default_retry",
    "default_timeout",
    "visibility_timeout",
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


class AdminMaintenance(OJSView):
    needs = {"GET": Scope.OPERATOR, "POST": Scope.ADMIN}

    def get(self, request: HttpRequest) -> dict[str, Any]:
        return _render(mode.status())

    def post(self, request: HttpRequest) -> dict[str, Any]:
        self.access.check_all_queues()
        data = self.body()
        fields.required(data, "enabled")
        enabled = fields.boolean(data, "enabled")
        reason = fields.string(data, "reason")
        given = data.get("estimated_duration")
        duration = None if given is None else parse_duration(given, "estimated_duration")
        mode.check(reason, duration)
        if not enabled:
            return _render(mode.disable())
        return _render(mode.enable(reason=reason, estimated_duration=duration))


class AdminSystemConfig(OJSView):
    """The configuration without sensitive values: no path, no credential, no host name."""

    needs = {"GET": Scope.OPERATOR}

    def get(self, request: HttpRequest) -> dict[str, Any]:
        values = settings()
        shown = {name: _json_value(getattr(values, name)) for name in _SHOWN}
        return {
            "implementation": {"name": "django_ojs", "version": VERSION},
            "backend": database.kind(),
            "maintenance": mode.status().enabled,
            "configuration": shown,
        }


def _render(status: MaintenanceStatus) -> dict[str, Any]:
    # The values are repeated under the names that requests and clients use.
    out: dict[str, Any] = {"maintenance": status.enabled, "enabled": status.enabled}
    if status.reason is not None:
        out["reason"] = status.reason
    moments = timestamps(
        enabled_at=status.enabled_at,
        started_at=status.enabled_at,
        estimated_end=status.estimated_end,
        ends_at=status.estimated_end,
    )
    return {**out, **moments}


def _json_value(value: Any) -> Any:
    if isinstance(value, timedelta):
        return format_duration(value)
    return value.render() if isinstance(value, RetryPolicy) else value
