"""`celery.states`: the names of the states of a task."""

from typing import Final

PENDING: Final = "PENDING"
STARTED: Final = "STARTED"
RETRY: Final = "RETRY"
SUCCESS: Final = "SUCCESS"
FAILURE: Final = "FAILURE"
REVOKED: Final = "REVOKED"
IGNORED: Final = "IGNORED"
REJECTED: Final = "REJECTED"

READY_STATES: Final = frozenset({SUCCESS, FAILURE, REVOKED})
UNREADY_STATES: Final = frozenset({PENDING, STARTED, RETRY})
EXCEPTION_STATES: Final = frozenset({RETRY, FAILURE, REVOKED})
