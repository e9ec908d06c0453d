"""Delete finished jobs after the retention times of the settings."""

from datetime import timedelta

from django.db.models import QuerySet
from django.db.models.functions import Now

from django_ojs.conf import settings
from django_ojs.models import Job
from django_ojs.operations.delete import erase
from django_ojs.spec.states import State
from django_ojs.storage import database
from django_ojs.storage.database import BATCH


def prune(limit: int = BATCH, *, since: timedelta = timedelta(0)) -> int:
    """Delete finished jobs that have been past their retention time for `since`, or longer.

    At most `limit` of each kind. Return how many.
    """
    return sum(
        _prune(state, dead_letter, age + since, limit)
        for (state, dead_letter), age in settings().retention.items()
    )


def _prune(state: State, dead_letter: bool, age: timedelta, limit: int) -> int:
    ended = Job.primary.filter(state=state, dead_letter=dead_letter)
    old = ended.filter(finished_at__lte=Now() - age).order_by("finished_at", "pk")
    # Not `exists()`: it drops the order, without which the planner may not use the index.
    return 0 if old.values_list("pk", flat=True).first() is None else _erase(old, limit)


@database.write_transaction
def _erase(old: QuerySet[Job], limit: int) -> int:
    keys = list(old.select_for_update(skip_locked=True).values_list("pk", flat=True)[:limit])
    # There are none when another process has deleted them.
    return erase(keys) if keys else 0
