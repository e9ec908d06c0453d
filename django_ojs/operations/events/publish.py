"""What `operations.push` calls for the jobs that it has stored."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from django_ojs import extension
from django_ojs.models import Job
from django_ojs.spec.events import EventType
from django_ojs.storage import database

ENQUEUED = (EventType.JOB_ENQUEUED, EventType.JOB_SCHEDULED)


def atomic_if_published(*types: EventType) -> AbstractContextManager[object]:
    """Open a transaction if an extension wants the jobs that are stored."""
    return database.atomic_if(types and extension.registry.stored)


def enqueued(new: Sequence[Job]) -> None:
    """Jobs were stored."""
    extension.stored(new)
    if extension.registry.stored_and_committed:
        database.after_commit(lambda: extension.stored_and_committed(new))
