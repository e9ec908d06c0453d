"""Which jobs run alone: those that were lost several times when a worker died with several jobs.

One of these jobs may have killed the worker, and the others only lost their runs. So the first
such losses spend no attempt. A job that was lost again runs in a process of its own: if that dies,
it is known which job was the cause.
"""

from enum import Enum
from typing import Final

#: A job that was lost this many times together with others runs alone from then on.
ISOLATED_AFTER: Final = 2


class Isolation(Enum):
    """Which jobs a worker claims."""

    #: All jobs: the worker has no supervisor of this package.
    ANY = "any"
    #: The jobs that may run beside others.
    SHARED = "shared"
    #: The jobs that run alone.
    ALONE = "alone"
