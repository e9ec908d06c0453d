"""What a caller may be allowed to do (ojs-security §7)."""

from collections.abc import Iterable
from enum import StrEnum


class Scope(StrEnum):
    """One right. The roles of ojs-security §7.3, and the reading of jobs as a right of its own."""

    #: Look at jobs and queues on the data plane: INFO and the lists.
    READ = "read"
    #: PUSH.
    PRODUCER = "producer"
    #: FETCH, ACK, FAIL, BEAT.
    WORKER = "worker"
    #: Read, push, cancel and retry single jobs; look at the control plane.
    OPERATOR = "operator"
    #: Everything.
    ADMIN = "admin"


# The matrix of §7.5. Neither a producer nor a worker reads jobs: a stolen key that only enqueues
# must not give away the arguments of all the others.
_INCLUDES: dict[Scope, frozenset[Scope]] = {
    Scope.READ: frozenset(),
    Scope.PRODUCER: frozenset(),
    Scope.WORKER: frozenset(),
    Scope.OPERATOR: frozenset({Scope.READ, Scope.PRODUCER}),
    Scope.ADMIN: frozenset(Scope),
}


def complete(scopes: Iterable[Scope]) -> frozenset[Scope]:
    """Return the scopes with all that they include."""
    given = frozenset(scopes)
    return given.union(*(_INCLUDES[scope] for scope in given))
