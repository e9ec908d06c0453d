"""The `exception_class` of a task's error where no exception of Python is the cause."""


class TaskCancelled(Exception):
    """The job was cancelled."""


class TaskDiscarded(Exception):
    """The job was discarded without a failure: it expired, was dropped, or an operator did it."""


class TaskFailed(Exception):
    """A run failed without an exception that is known here.

    It timed out, its worker died, or a worker in another language reported the failure.
    """
