"""Checkpoints (ojs-durable-execution §4): where another run of a job can continue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.extension import Declared, DueStep, Extension, ForTests, Hooks
from django_ojs.extensions.checkpoints.models import MARK, NUMBER, Checkpoint
from django_ojs.extensions.checkpoints.spec import SavedCheckpoint
from django_ojs.spec import json
from django_ojs.spec.progress import Report
from django_ojs.storage import schema
from django_ojs.storage.transitions import Claim

if TYPE_CHECKING:
    from django_ojs.models import Job
    from django_ojs.storage.claimed_job import Claimed


class CheckpointsExtension(Extension):
    """Saves checkpoints, and gives them to the next run."""

    name = "checkpoints"
    number = NUMBER
    schema = Path(__file__).parent / "schema"
    openapi = Path(__file__).with_name("openapi.yaml")

    def hooks(self) -> Hooks:
        """Return the hooks; no setting changes them."""
        return Hooks(
            fetched=_fetched,
            shown=_shown,
            reported=_reported,
            context={"checkpoint": _save},
        )

    def for_tests(self) -> ForTests:
        """Save in the test's transaction, because another connection would not see its job."""
        return ForTests(context={"checkpoint": _save_in_test})

    def catch_up(self, connection: BaseDatabaseWrapper) -> None:
        """Mark the jobs that have a checkpoint. The maintenance deletes unneeded checkpoints."""
        schema.mark(connection, self.number, "SELECT job_id FROM ojs_checkpoint")

    def due_steps(self) -> Sequence[DueStep]:
        """Delete the checkpoints that a trigger could not delete."""
        from django_ojs.extensions.checkpoints import pruning as checkpoints

        pruner = checkpoints.CheckpointPruner()
        return (DueStep(run=pruner.prune, interval=60.0, batch=checkpoints.WALK),)

    def routes(self) -> Sequence[Any]:
        """Return the routes of checkpoints."""
        from django_ojs.extensions.checkpoints import views as checkpoint
        from django_ojs.http.routing import route

        path = "v1/jobs/<str:key>/checkpoint"
        return (route(path, checkpoint.JobCheckpoint, "ojs-job-checkpoint"),)

    def panels(self) -> Sequence[Any]:
        """Return the checkpoint on the page of a job."""
        from django_ojs.extensions.checkpoints.admin import JOB_CHECKPOINT

        return (JOB_CHECKPOINT,)

    def manifest(self) -> Sequence[Declared]:
        """Declare checkpoints."""
        return (Declared(official="durable-execution"),)


def _fetched(jobs: Sequence[Claimed]) -> None:
    found = Checkpoint.of([job.id for job in jobs])
    for job in jobs:
        if (saved := found.get(job.id)) is not None:
            job.more = {**job.more, **_members(saved)}


def _shown(job: Job) -> Mapping[str, json.JSON]:
    if not job.marks & MARK:
        return {}
    from django_ojs.extensions.checkpoints import operations

    saved = operations.latest(job)
    return {} if saved is None else _members(saved)


def _members(saved: SavedCheckpoint) -> Mapping[str, json.JSON]:
    # These are the members of ojs-durable-execution §6.1, and of ojs-progress §6.4.
    return {
        "checkpoint": {"state": saved.state, "sequence": saved.sequence},
        "last_checkpoint": saved.state,
    }


def _reported(job: Job, report: Report) -> None:
    if report.checkpoint is not None:
        from django_ojs.extensions.checkpoints import operations

        operations.store(job, operations.encoded(report.checkpoint))


def _save(job: Claimed, state: json.JSON) -> None:
    from django_ojs.extensions.checkpoints import worker

    worker.save(job, state)


def _save_in_test(job: Claimed, state: json.JSON) -> None:
    from django_ojs.extensions.checkpoints import operations

    if job.worker_id is None:
        operations.encoded(state)  # This raises for a state that cannot be stored.
        return
    operations.save(job.id, state, claim=Claim(worker_id=job.worker_id, run=job.run))
