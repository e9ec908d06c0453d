"""Delete finished jobs after the retention times of the settings."""

from datetime import timedelta

from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from django_ojs.conf import settings
from django_ojs.models import Job
from django_ojs.operations.delete import erase
from django_ojs.spec.states import State
from django_ojs.storage import database
from django_ojs.storage.database import BATCH


def prune(limit: int = BATCH) -> int:
    """Delete finished jobs that are past their retention time. Return how many."""
    keep = settings()
    rules = [
        (Q(state=State.COMPLETED, dead_letter=False), keep.keep_completed),
        (Q(state=State.CANCELLED, dead_letter=False), keep.keep_cancelled),
        (Q(state=State.DISCARDED, dead_letter=False), keep.keep_discarded),
        (Q(state=State.DISCARDED, dead_letter=True), keep.keep_dead_letters),
    ]
    return sum(_prune(which, age, limit) for which, age in rules)


def _prune(which: Q, age: timedelta, limit: int) -> int:
    old = Job.primary.filter(which, finished_at__lte=Now() - age).order_by("finished_at", "pk")
    # Not `exists()`: it drops the order, without which the planner may not use the index.
    return 0 if old.values_list("pk", flat=True).first() is None else _erase(old, limit)


@database.write_transaction
def _erase(old: QuerySet[Job], limit: int) -> int:
    keys = list(old.select_for_update(skip_locked=True).values_list("pk", flat=True)[:limit])
    # There are none when another process has deleted them.
    return erase(keys) if keys else 0
