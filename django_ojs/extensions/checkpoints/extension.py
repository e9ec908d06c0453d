"""Checkpoints (ojs-progress): delete those that their jobs have left."""

from collections.abc import Mapping, Sequence
from typing import Any

from django_ojs.extension import Declared, DueStep, Extension, Hooks


class CheckpointsExtension(Extension):
    """Deletes checkpoints."""

    name = "checkpoints"
    number = 18

    def hooks(self) -> Hooks:
        """Return the hooks: claims and handlers still know checkpoints by name."""
        return Hooks()

    def due_steps(self) -> Sequence[DueStep]:
        """Delete what a trigger could not."""
        from django_ojs.extensions.checkpoints import pruning as checkpoints

        pruner = checkpoints.CheckpointPruner()
        return (DueStep(run=pruner.prune, interval=60.0, batch=checkpoints.WALK),)

    def routes(self) -> Sequence[Any]:
        """Return the routes of checkpoints."""
        from django_ojs.extensions.checkpoints import views as checkpoint
        from django_ojs.http.routing import route

        path = "v1/jobs/<str:key>/checkpoint"
        return (route(path, checkpoint.JobCheckpoint, "ojs-job-checkpoint"),)

    def openapi(self) -> Sequence[Mapping[str, Any]]:
        """Return the part of its routes."""
        from django_ojs.http.views.openapi import part_of

        return part_of("checkpoints")

    def manifest(self) -> Sequence[Declared]:
        """Declare it."""
        return (Declared(official="durable-execution"),)
