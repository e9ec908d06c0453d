"""The `exception_class` of a task's error that no Python exception caused."""


class TaskCancelled(Exception):
    """The job was cancelled."""


class TaskDiscarded(Exception):
    """The job was discarded without a failure: it expired, was dropped, or an operator did it."""


class TaskFailed(Exception):
    """A run failed without a known Python exception.

    It timed out, its worker died, or a worker in another language reported the failure.
    """
