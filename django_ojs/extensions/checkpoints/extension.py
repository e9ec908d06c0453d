"""Checkpoints (ojs-progress): delete those that their jobs have left."""

from collections.abc import Sequence
from pathlib import Path

from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.extension import DueStep, Extension, Hooks
from django_ojs.extensions.checkpoints.models import NUMBER
from django_ojs.storage import schema


class CheckpointsExtension(Extension):
    """Deletes checkpoints."""

    name = "checkpoints"
    number = NUMBER
    schema = Path(__file__).parent / "schema"

    def hooks(self) -> Hooks:
        """Return the hooks: claims and handlers still know checkpoints by name."""
        return Hooks()

    def catch_up(self, connection: BaseDatabaseWrapper) -> None:
        """Mark the jobs that have a checkpoint. What others have left behind, a step deletes."""
        schema.mark(connection, self.number, "SELECT job_id FROM ojs_checkpoint")

    def due_steps(self) -> Sequence[DueStep]:
        """Delete what a trigger could not."""
        from django_ojs.extensions.checkpoints import pruning as checkpoints

        pruner = checkpoints.CheckpointPruner()
        return (DueStep(run=pruner.prune, interval=60.0, batch=checkpoints.WALK),)
