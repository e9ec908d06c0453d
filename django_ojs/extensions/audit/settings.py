"""The settings of the audit trail."""

from dataclasses import dataclass
from datetime import timedelta

from django_ojs.setting import DURATION, duration, setting


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """Settings in `OJS`; names are the keys in lower case."""

    keep_audit_entries: timedelta = setting(timedelta(days=365), duration, DURATION)
