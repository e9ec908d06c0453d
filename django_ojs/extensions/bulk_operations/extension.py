"""Bulk operations of the admin: execute those that were ordered, and delete old ones."""

from collections.abc import Sequence

from django_ojs.extension import DueStep, Extension, Hooks


class BulkOperationsExtension(Extension):
    """Executes bulk operations."""

    name = "bulk operations"
    number = 19

    def hooks(self) -> Hooks:
        """Return the hooks: what operators order is a row."""
        return Hooks()

    def due_steps(self) -> Sequence[DueStep]:
        """Execute them, and prune."""
        from django_ojs.operations.jobs import bulk_execution, bulk_operations

        return (
            DueStep(run=bulk_execution.work, interval=1.0, when=bulk_execution.open_condition),
            DueStep(run=bulk_operations.prune, interval=60.0),
            DueStep(run=bulk_operations.prune_followed, interval=60.0),
        )
