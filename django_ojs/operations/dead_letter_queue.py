"""The `dead_letter_queue` of a queue (ojs-queue-config §6.4): its dead letters are there.

They stay discarded, as ojs-dead-letter §4.1 says, so that no worker fetches them, and a retry
returns them to the queue where they ran.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from uuid import UUID

from django_ojs.models import Job
from django_ojs.spec.errors import InvalidRequest
from django_ojs.storage import database, queue_configs


def queue_of(name: str) -> str | None:
    """Return where the dead letters of a queue go; None: they stay.

    A queue may inherit its own name from the default policy; that is none.
    """
    found = queue_configs.of(name).dead_letter_queue
    return None if found == name else found


def move(jobs: Mapping[UUID, str]) -> None:
    """Move the dead letters among these jobs, given with their queues, in a transaction.

    The caller has locked them, and has published their end as one of the queue where they ran.
    """
    moved: dict[tuple[str, str], list[UUID]] = defaultdict(list)
    for key, queue in jobs.items():
        if (target := queue_of(queue)) is not None:
            moved[queue, target].append(key)
    for (queue, target), keys in moved.items():
        which = Job.primary.filter(pk__in=keys, queue=queue, dead_letter=True)
        which.update(queue=target, original_queue=queue)


def put_back(jobs: Collection[Job]) -> None:
    """Set the queue of dead letters that are retried to that where they ran; not stored."""
    for job in jobs:
        if job.original_queue is not None:
            job.queue, job.original_queue = job.original_queue, None


def check(name: str, target: object) -> None:
    """Reject a dead_letter_queue that leads back to its queue. Raises InvalidRequest.

    In the transaction that stores it. Of two that would lead to each other the second waits until
    the first has committed, and finds it.
    """
    if not isinstance(target, str):
        return
    database.dialect().lock_subject(database.connection(), "dead-letter queues")
    queue_configs.changed()
    seen = {name}
    following: str | None = target
    while following is not None:
        if following in seen:
            raise InvalidRequest.of(
                "dead_letter_queue",
                "must be another queue, whose own dead_letter_queue does not lead back to this one",
            )
        seen.add(following)
        further = queue_configs.config_of(following).dead_letter_queue
        following = None if further == following else further
