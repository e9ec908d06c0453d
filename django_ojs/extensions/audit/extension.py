"""The audit trail: which operator did what to which object, and what changed.

`recording.record` writes an act; `operations.access.operator` tells who acts.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Model

from django_ojs.extension import Act, DueStep, Extension, Hooks
from django_ojs.extensions.audit.settings import AuditSettings
from django_ojs.spec.published import PastAct


class AuditExtension(Extension):
    """Records acts."""

    name = "audit"
    number = 4
    settings = AuditSettings

    def hooks(self) -> Hooks:
        """Return the hooks; no setting changes them."""
        return Hooks(acted=_record)

    def due_steps(self) -> Sequence[DueStep]:
        """Delete old entries."""
        from django_ojs.extensions.audit import storage

        return (DueStep(run=storage.prune, interval=60.0),)

    def past_acts(self, since: datetime) -> Sequence[PastAct]:
        """Return the entries since a time."""
        from django_ojs.extensions.audit import storage

        return storage.latest(since)

    def pages(self) -> Mapping[type[Model], str]:
        """Return the pages of its model."""
        from django_ojs.extensions.audit.models import AuditEntry

        return {AuditEntry: "django_ojs.extensions.audit.admin.AuditEntryAdmin"}

    def panels(self) -> Sequence[Any]:
        """Return what operators did to a job."""
        from django_ojs.extensions.audit.admin_rows import JOB_HISTORY

        return (JOB_HISTORY,)

    def history(self, request: Any, model: str, key: str) -> Sequence[tuple[str, Any]]:
        """Return the entries about an object."""
        from django_ojs.extensions.audit.admin_rows import history_of

        rows = history_of(request, model, key)
        return [("django_ojs/admin/audit_rows.html", rows)] if rows else []


def _record(act: Act) -> Callable[[Mapping[str, Any]], None]:
    from django_ojs.extensions.audit import recording

    return recording.record(act)
