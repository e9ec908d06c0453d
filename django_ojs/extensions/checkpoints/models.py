"""The checkpoints of jobs."""

from collections.abc import Collection
from typing import Final
from uuid import UUID

from django.db import models

from django_ojs.conf import settings
from django_ojs.extensions.checkpoints import spec as checkpoint
from django_ojs.models.base import StoredModel
from django_ojs.spec import json

#: The number of the extension, and its bit in `Job.marks`, set once a checkpoint is saved.
NUMBER: Final = 18
MARK: Final = 1 << NUMBER


class Checkpoint(StoredModel):
    """The latest checkpoint of a job (ojs-durable-execution §5.1).

    It has a table of its own, without a foreign key, so that a job that saves no checkpoint pays
    nothing. Triggers delete the row when the job is deleted, or ends without being a dead letter.
    """

    job_id = models.UUIDField(primary_key=True)
    #: The run that saved it: an earlier run cannot replace the checkpoint of a later one.
    run = models.PositiveIntegerField()
    sequence = models.PositiveIntegerField()
    #: The state as JSON, as it was sent. It is NULL if it was deleted on request; the row stays, so
    #: that the sequence continues.
    state = models.TextField(null=True)  # noqa: DJ001  # as above
    created_at = models.DateTimeField()

    class Meta:
        db_table = "ojs_checkpoint"
        default_permissions = ()

    def __str__(self) -> str:
        return f"checkpoint {self.sequence} of {self.job_id}"

    @classmethod
    def of(cls, jobs: Collection[UUID]) -> dict[UUID, checkpoint.SavedCheckpoint]:
        """Return the checkpoints of these jobs, in one query."""
        return {
            row.job_id: checkpoint.SavedCheckpoint(
                state=json.loads_stored(row.state or "", exact_integers=settings().exact_integers),
                sequence=row.sequence,
                created_at=row.created_at,
            )
            for row in cls.primary.filter(job_id__in=jobs, state__isnull=False)
        }
