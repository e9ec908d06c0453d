"""INFO (ojs-core §7.7): return a job as it is now. It only reads."""

from uuid import UUID

from django_ojs.models import Job
from django_ojs.storage import transitions


def info(job_id: UUID) -> Job:
    """Return the job. Raises JobNotFound."""
    return transitions.get(job_id)
