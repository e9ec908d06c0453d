"""Checkpoints (ojs-progress): delete those that their jobs have left."""

from collections.abc import Sequence
from pathlib import Path

from django_ojs import extensions
from django_ojs.extension import DueStep, Extension, Hooks


class CheckpointsExtension(Extension):
    """Deletes checkpoints."""

    name = "checkpoints"
    number = 18
    schema = Path(extensions.__path__[0]) / "checkpoints/schema"

    def hooks(self) -> Hooks:
        """Return the hooks: claims and handlers still know checkpoints by name."""
        return Hooks()

    def due_steps(self) -> Sequence[DueStep]:
        """Delete what a trigger could not."""
        from django_ojs.extensions.checkpoints import pruning as checkpoints

        pruner = checkpoints.CheckpointPruner()
        return (DueStep(run=pruner.prune, interval=60.0, batch=checkpoints.WALK),)
