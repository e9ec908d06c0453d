"""Large arguments in an object store: remove those without a job."""

from collections.abc import Sequence

from django_ojs.extension import DueStep, Extension, Hooks


class OffloadExtension(Extension):
    """Removes offloaded arguments."""

    name = "offload"
    number = 13

    def hooks(self) -> Hooks:
        """Return the hooks: enqueues and handlers still know offloaded arguments by name."""
        return Hooks()

    def due_steps(self) -> Sequence[DueStep]:
        """Sweep the store."""
        from django_ojs.payloads import sweep

        return (DueStep(run=sweep.Sweeper().start, interval=sweep.INTERVAL),)
