"""The operations of the Open Job Spec (ojs-core §7), a file each.

Beside them: what keeps the house in order.

The Python client, the worker, the HTTP API and the admin call these; there is no other way to
change a job.
"""

from django.db.models import QuerySet

from django_ojs.models import Job
from django_ojs.storage import database


def jobs() -> QuerySet[Job]:
    """All jobs, on the alias that holds them."""
    return Job.objects.using(database.alias())
