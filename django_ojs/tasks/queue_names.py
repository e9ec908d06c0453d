"""The queues of tasks and of their jobs: the same names, unless OPTIONS["queues"] has others.

OJS allows no underscores or capital letters in these names, but tasks of packages may have them.
"""

from django_ojs.tasks.compat import BaseTaskBackend


def job_queue(backend: BaseTaskBackend, queue_name: str) -> str:
    """Return the queue of the jobs of tasks with this `queue_name`."""
    return _renamed(backend).get(queue_name, queue_name)


def task_queue(backend: BaseTaskBackend, queue: str) -> str:
    """Return the `queue_name` of the task of a job in this queue."""
    return next((name for name, other in _renamed(backend).items() if other == queue), queue)


def _renamed(backend: BaseTaskBackend) -> dict[str, str]:
    found: dict[str, str] = backend.options.get("queues", {})
    return found
