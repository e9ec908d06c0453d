"""Results that were too large to be passed on to the next step (ojs-workflows §7.5)."""

from typing import Final
from uuid import UUID

from django_ojs.models import Job
from django_ojs.spec import ids
from django_ojs.spec.errors import JobNotFound, OJSError
from django_ojs.spec.json import JSON
from django_ojs.storage.dialects.expressions import InWorkflow

_REFERENCE: Final = {"result_ref", "result_size_bytes", "result_content_type"}


def whole_result(workflow_id: UUID, value: JSON) -> JSON:
    """Return a parent result, with results in place of references to them.

    Raises JobNotFound when a job that it refers to was pruned.
    """
    if isinstance(value, list):
        return [whole_result(workflow_id, each) for each in value]
    if not isinstance(value, dict) or value.keys() != _REFERENCE:
        return value
    try:
        job_id = ids.parse_id(str(value["result_ref"]).rpartition("/")[2])
    except OJSError:
        return value
    # Only jobs of this workflow are read, because a result may look like a reference to any job.
    job = Job.primary.filter(InWorkflow(workflow_id), pk=job_id).first()
    if job is None:
        raise JobNotFound.with_id(job_id)
    return job.result  # type: ignore[no-any-return]  # the result of a job is JSON
