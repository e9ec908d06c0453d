"""What an enqueue tells once its transaction has committed."""

from collections.abc import Collection, Mapping

from django_ojs.storage import database, notify
from django_ojs.storage.figures import rollups


def tell(available: Collection[str], numbers: Mapping[tuple[str, str], int]) -> None:
    """Wake the workers of the queues with available jobs, and count the jobs by queue and type."""

    def committed() -> None:
        if available:
            notify.send(available)
        rollups.add(rollups.ENQUEUED, numbers)

    database.after_commit(committed)
