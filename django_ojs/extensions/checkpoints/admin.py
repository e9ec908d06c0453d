"""The checkpoint on the page of its job."""

from typing import Any, Final

from django.http import HttpRequest
from django.utils.translation import gettext_noop

from django_ojs.admin import payload_permission
from django_ojs.admin.base import OperatorModelAdmin
from django_ojs.admin.jobs import UNFOLDED_JSON, pretty
from django_ojs.admin.panels import Panel
from django_ojs.admin.query_timeout import TimedQueries
from django_ojs.extensions.checkpoints.operations import latest
from django_ojs.models import Job
from django_ojs.operations.jobs.redaction import redacted


def _of_job(
    page: OperatorModelAdmin, request: HttpRequest, query: TimedQueries, job: Job
) -> dict[str, Any] | None:
    saved = query(gettext_noop("checkpoint"), lambda: latest(job))
    if saved is None:
        return None
    text = pretty(redacted(saved.state)) if payload_permission.has_permission(request) else None
    unfolded = text is not None and len(text) < UNFOLDED_JSON
    return {"saved": saved, "text": text, "unfolded": unfolded}


JOB_CHECKPOINT: Final = Panel(
    kind=Job, read=_of_job, template="django_ojs/admin/job_checkpoint.html"
)
