"""Delete the checkpoints that ended and deleted jobs have left behind.

A trigger deletes the checkpoint of a job that ends or is deleted. On PostgreSQL it skips a row that
the open transaction of a handler has locked, so that the end of the job need not wait for it.
"""

from collections.abc import Collection
from typing import Final
from uuid import UUID

from django.db.models import Q

from django_ojs.extensions.checkpoints.models import Checkpoint
from django_ojs.models import Job
from django_ojs.storage import database
from django_ojs.storage.dialects.expressions import OneOf

#: Checkpoints that one step reads.
WALK: Final = database.BATCH


class CheckpointPruner:
    """Walks over all checkpoints, WALK of them at each step."""

    def __init__(self) -> None:
        self._after: UUID | None = None

    def prune(self) -> int:
        """Continue the walk, or begin a new one. Return how many checkpoints were read."""
        rows = Checkpoint.primary.order_by("job_id")
        if self._after is not None:
            rows = rows.filter(job_id__gt=self._after)
        keys = list(rows.values_list("job_id", flat=True)[:WALK])
        self._after = keys[-1] if len(keys) == WALK else None
        if left := _left(keys):
            _delete(left)
        return len(keys)


@database.write_transaction
def _delete(keys: Collection[UUID]) -> None:
    rows = Checkpoint.primary.filter(job_id__in=keys).order_by("job_id")
    locked = list(rows.select_for_update(skip_locked=True).values_list("job_id", flat=True))
    # The condition is repeated under the lock, because a job may have been retried by hand since.
    Checkpoint.primary.filter(job_id__in=_left(locked)).delete()


def _left(keys: Collection[UUID]) -> set[UUID]:
    """Return which of these jobs need no checkpoint: deleted, or ended and not dead letters."""
    needed = Job.primary.filter(
        Q(finished_at__isnull=True) | Q(dead_letter=True), OneOf("pk", keys)
    )
    return set(keys) - set(needed.values_list("pk", flat=True))
