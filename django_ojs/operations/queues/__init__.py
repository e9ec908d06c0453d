"""List, configure, pause and delete queues (ojs-queue-config, ojs-admin-api §6).

A queue needs no row to be used. It gets one when it is paused, drained or configured.
"""

from django_ojs.operations.queues.configuration import (
    configure,
    configure_default,
    create,
    default_policy,
)
from django_ojs.operations.queues.deletion import Deletion, Strategy, delete
from django_ojs.operations.queues.pausing import drain, pause, resume
from django_ojs.operations.queues.status import (
    QueueState,
    QueueStatus,
    busiest,
    get,
    listing,
    number,
)

__all__ = [
    "Deletion",
    "QueueState",
    "QueueStatus",
    "Strategy",
    "busiest",
    "configure",
    "configure_default",
    "create",
    "default_policy",
    "delete",
    "drain",
    "get",
    "listing",
    "number",
    "pause",
    "resume",
]
