"""Scopes: what a client is allowed to do (ojs-security §7)."""

from collections.abc import Iterable
from enum import StrEnum


class Scope(StrEnum):
    """A permission: the roles of ojs-security §7.3, and `read`, which only reads jobs."""

    #: Read jobs and queues on the data plane: INFO and the lists.
    READ = "read"
    #: PUSH.
    PRODUCER = "producer"
    #: FETCH, ACK, FAIL, BEAT.
    WORKER = "worker"
    #: Read, push, cancel and retry single jobs; read the control plane.
    OPERATOR = "operator"
    #: Everything.
    ADMIN = "admin"


# The matrix of §7.5. Neither a producer nor a worker reads jobs: a stolen key that only enqueues
# must not disclose the arguments of other jobs.
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
