"""What steps raise."""

from typing import ClassVar


class StepError(Exception):
    """A step cannot be taken here. Running the job again would end in the same way."""

    ojs_retryable: ClassVar[bool] = False


class ProgramChanged(StepError):
    """A run takes another step than its history says: the program was changed meanwhile."""


class StepFailed(StepError):
    """A step failed, and is not tried again.

    It is also an instance of the class that the function raised, if that can be imported.
    """


class WaitTimedOut(TimeoutError):
    """A step waited too long for a signal, or for jobs. The step has ended with this error."""

    ojs_retryable: ClassVar[bool] = False
