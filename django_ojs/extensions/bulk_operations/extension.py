"""Bulk operations of the admin: execute those that were ordered, and delete old ones."""

import re
from collections.abc import Sequence

from django_ojs.extension import DueStep, Extension, Qualifier
from django_ojs.spec.errors import InvalidRequest
from django_ojs.storage.dialects.expressions import RetriedBy


def _retried_by(value: str) -> RetriedBy:
    if not re.fullmatch(r"[0-9]{1,18}", value):
        raise InvalidRequest("retried_by must be the number of a bulk operation.")
    return RetriedBy(int(value))


class BulkOperationsExtension(Extension):
    """Executes bulk operations."""

    name = "bulk operations"
    number = 19

    qualifiers = (
        Qualifier(
            name="retried_by",
            example="retried_by:12 (by the bulk operation 12, in the last week)",
            condition=_retried_by,
            is_indexed=True,
        ),
    )

    def due_steps(self) -> Sequence[DueStep]:
        """Execute bulk operations, and prune old ones."""
        from django_ojs.operations.jobs import bulk_execution, bulk_operations

        return (
            DueStep(run=bulk_execution.work, interval=1.0, when=bulk_execution.open_condition),
            DueStep(run=bulk_operations.prune, interval=60.0),
            DueStep(run=bulk_operations.prune_followed, interval=60.0),
        )
