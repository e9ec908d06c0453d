"""The `dead_letter_queue` of a queue (ojs-queue-config §6.4), which its dead letters are moved to.

The dead letters stay discarded (ojs-dead-letter §4.1), so that no worker fetches them. A retry
returns them to the queue where they ran.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from uuid import UUID

from django_ojs.models import Job
from django_ojs.spec.errors import InvalidRequest
from django_ojs.storage import database, queue_configs


def queue_of(name: str) -> str | None:
    """Return the queue that the dead letters of a queue are moved to, or None if they stay.

    A queue may inherit its own name from the default policy; then they stay too.
    """
    found = queue_configs.of(name).dead_letter_queue
    return None if found == name else found


def move(jobs: Mapping[UUID, str]) -> None:
    """Move the dead letters among these jobs, given with their queues, in a transaction.

    The caller has locked them, and has published the end of each as an event of the queue where it
    ran.
    """
    moved: dict[tuple[str, str], list[UUID]] = defaultdict(list)
    for key, queue in jobs.items():
        if (target := queue_of(queue)) is not None:
            moved[queue, target].append(key)
    for (queue, target), keys in moved.items():
        which = Job.primary.filter(pk__in=keys, queue=queue, dead_letter=True)
        which.update(queue=target, original_queue=queue)


def put_back(jobs: Collection[Job]) -> None:
    """Give dead letters that are retried the queue where they ran. The caller saves them."""
    for job in jobs:
        if job.original_queue is not None:
            job.queue, job.original_queue = job.original_queue, None


def check(name: str, target: object) -> None:
    """Reject a dead_letter_queue that leads back to its queue. Raises InvalidRequest.

    Call it in the transaction that stores the configuration. If two transactions would make two
    queues lead to each other, the second waits until the first has committed, and is then rejected.
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
