"""Locks that hold on a Galera cluster, whose nodes all take writes.

The lock of a row holds on its own node. What another node does is compared at COMMIT only, and only
rows that were written: two transactions that lock the same row on two nodes, and do not change it,
both commit. So on a node of a cluster a lock of `ojs_lock` is a change of the row as well. If
transactions on two nodes hold it at once, the first to commit wins, and the other gets the error of
a deadlock (1213), whether it waited for the lock or had already read something.
"""

from collections.abc import Iterable
from typing import Any, Final
from weakref import WeakKeyDictionary

from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.contrib.mariadb.admission_shares import Shares
from django_ojs.storage.dialects.base import ALWAYS
from django_ojs.storage.dialects.server import Session


class GaleraLocks(Shares):
    """Row locks that another node of a cluster respects, where the server is a node of one."""

    def __init__(self) -> None:
        #: By the driver's connection: one alias may lead to another server after a reconnection.
        self._is_node: Final[WeakKeyDictionary[Any, bool]] = WeakKeyDictionary()

    def is_cluster_node(self, connection: BaseDatabaseWrapper) -> bool:
        """Say whether this session is on a node of a cluster."""
        connection.ensure_connection()
        link: Any = connection.connection
        known = self._is_node.get(link)
        if known is None:
            # A server that was built without Galera does not have the variable.
            rows = self._rows(connection, "is_cluster_node")
            known = self._is_node[link] = bool(rows) and rows[0][1] in ("ON", "1")
        return known

    def uses_shares(self, connection: BaseDatabaseWrapper) -> bool:
        # Two nodes would count at the same time, without the jobs that the other has not sent yet.
        return not self.is_cluster_node(connection)

    def _lock_slots(
        self, connection: BaseDatabaseWrapper, slots: Iterable[int], how: str = ""
    ) -> dict[int, bool]:
        found = super()._lock_slots(connection, slots, how)
        if found and self.is_cluster_node(connection):
            self._run(connection, "write_slots", slots=", ".join(map(str, sorted(found))))
        return found

    def dead_workers(
        self, connection: BaseDatabaseWrapper, *, back_for: float = ALWAYS
    ) -> list[tuple[str, Session | None]]:
        if not connection.in_atomic_block and self.is_cluster_node(connection):
            # A node that lags, such as one that copies its data to another, has old heartbeats.
            self._rows(connection, "await_cluster")
        return super().dead_workers(connection, back_for=back_for)
