"""The checkpoints of jobs: one row for each job that has saved one."""

from datetime import datetime
from pathlib import Path
from typing import Any, Final, cast
from uuid import UUID

from django_ojs.conf import settings
from django_ojs.extensions.checkpoints.models import Checkpoint
from django_ojs.extensions.checkpoints.spec import SavedCheckpoint
from django_ojs.spec import json
from django_ojs.storage import database
from django_ojs.storage.statements import Statements

_STATEMENTS: Final = Statements(Path(__file__).parent / "statements")


def save(job_id: UUID, run: int, state: str) -> SavedCheckpoint | None:
    """Replace the checkpoint of a job. Return None when a later run has saved one."""
    key: Any = Checkpoint._meta.pk.get_db_prep_value(job_id, database.connection())
    rows = _STATEMENTS.rows("save", {"job_id": key, "run": run, "state": state})
    for stored_run, sequence, created_at in rows:
        if stored_run == run:
            return SavedCheckpoint(
                state=json.loads_stored(state, exact_integers=settings().exact_integers),
                sequence=sequence,
                created_at=cast("datetime", database.dialect().time(created_at)),
            )
    return None


def delete(job_id: UUID) -> bool:
    """Delete the state of a job's checkpoint. Return False when it has none."""
    # The row stays, so that the sequence of the job continues.
    rows = Checkpoint.primary.filter(job_id=job_id, state__isnull=False)
    return bool(rows.update(state=None))
