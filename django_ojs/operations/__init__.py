"""The operations of the Open Job Spec (ojs-core §7), a file each.

Beside them: what keeps the house in order.

The Python client, the worker, the HTTP API and the admin call these; there is no other way to
change a job.
"""

from collections.abc import Collection
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.dispatch import Signal

from django_ojs.models import Job
from django_ojs.storage import database


def announce(signal: Signal, job: Any, **details: Any) -> None:
    """Send a signal once the current transaction has committed."""
    if signal.has_listeners(Job):
        database.after_commit(partial(signal.send_robust, sender=Job, job=job, **details))


def announce_all(signal: Signal, keys: Collection[UUID]) -> None:
    """Send a signal for each of these jobs once the current transaction has committed."""
    if keys and signal.has_listeners(Job):
        for job in jobs().filter(pk__in=keys):
            announce(signal, job)


def jobs() -> QuerySet[Job]:
    """All jobs, on the alias that holds them."""
    return Job.objects.using(database.alias())
