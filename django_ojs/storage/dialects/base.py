"""What a database must provide: the statements on jobs and on what belongs to them.

Any number of jobs is stored, claimed, completed or promoted by one statement.
"""

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, Literal
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.spec.envelope import Envelope
from django_ojs.spec.isolation import ISOLATED_AFTER, Isolation
from django_ojs.storage.dialects.job_row import CLAIMED, NewRow
from django_ojs.storage.dialects.rows import (
    Candidate,
    ClaimRequest,
    Difference,
    Floor,
)
from django_ojs.storage.dialects.server import Server, Session

_TIMES = [name for name in CLAIMED if name.endswith(("_at", "_until"))]

#: The condition on the jobs that a claim takes. It is literal, so that the planner sees whether a
#: partial index covers it.
ISOLATION = {
    Isolation.ANY: "",
    Isolation.SHARED: f"AND lost_with_others < {ISOLATED_AFTER}",
    Isolation.ALONE: f"AND lost_with_others >= {ISOLATED_AFTER}",
}


#: The parts of complete.sql for the jobs that one worker has run.
RUNS_OF_WORKER: Final = {
    "fence": "ojs_job.run = r.run AND ojs_job.worker_id = %(worker_id)s",
    "lock": "SKIP LOCKED",
    "columns": "id",
}

#: No queue can have this name; its row in `ojs_queue` stands for all queues. While it is paused, no
#: job is claimed or promoted (see `operations.maintenance.mode`).
ALL_QUEUES = "*"

#: The value of `back_for` for a database that was not away.
ALWAYS = 1e9

#: The statements for runs that have ended without an ACK.
EndOfRun = Literal["add_attempts", "retry_failed", "discard_failed"]


def claim_values(request: ClaimRequest) -> dict[str, Any]:
    """Return the parameters of the statements that claim jobs."""
    return {
        "queue": request.queue,
        "worker_id": request.worker_id,
        "lease_ms": request.lease_ms,
        "own_lease": request.own_lease,
        "shortest_ms": request.shortest_ms,
        "applied": request.applied,
    }


class Dialect(Server):
    """The statements of one database."""

    #: Whether a query of an ordered subquery keeps its order, and stops when it has enough rows.
    keeps_subquery_order: ClassVar[bool]

    @abstractmethod
    def insert_jobs(
        self,
        connection: BaseDatabaseWrapper,
        envelopes: Sequence[Envelope],
        *,
        generated_ids: bool,
        only_if_admitted: bool,
        unless_held: bool = False,
    ) -> Sequence[NewRow] | None:
        """Store jobs, in order; skip those whose id is taken. Return the stored ones in order.

        With `generated_ids`, the ids were generated and cannot be taken. With `only_if_admitted`,
        return None and store nothing if it takes a count under a lock to know whether the queues
        have room; also return None if the id of a single job is taken.

        With `unless_held`, there is one job, with a generated id and a unique policy. Lock its key,
        and store the job if no other holds the key. Return an empty list if another may hold it,
        and None, without trying, if this takes several statements.
        """

    def oldest_available(
        self, connection: BaseDatabaseWrapper, queue: str, limit: int
    ) -> list[UUID]:
        """Return the ids of the available jobs of a queue that have waited longest, locked.

        Jobs that another transaction has locked are left out.
        """
        rows = self._rows(connection, "oldest_available", {"queue": queue, "limit": limit})
        return [self.uuid(key) for (key,) in rows]

    @abstractmethod
    def lock_queue(self, connection: BaseDatabaseWrapper, queue: str, timeout: float) -> str | None:
        """Lock a bounded queue until the transaction ends: no other transaction adds jobs to it.

        Wait for the transactions that have added jobs to it; raise OperationalError after
        `timeout` seconds, or on a deadlock. Return the version of the bound after the wait, or None
        if the transaction sees only what was committed before it began.
        """

    def claim(
        self,
        connection: BaseDatabaseWrapper,
        request: ClaimRequest,
        floor: Floor | None = None,
    ) -> list[tuple[Any, ...]] | None:
        """Claim the best available jobs of one queue.

        Return rows of `CLAIMED`, in no particular order, or None if the queue has rules that are
        not applied. With `floor`, leave out the jobs before it; this is only used where
        the database shows an OldestTransaction.
        """
        values = claim_values(request)
        values |= {"limit": request.limit, "max_bytes": request.max_bytes}
        values["at_least_one"] = request.at_least_one
        parts = {"isolation": ISOLATION[request.isolation], "registered": ""}
        if request.registered:
            # The row is read once for each job that was found, so a claim without jobs does not
            # read it: an idle worker must not lock a row, because that is a write.
            row = self.sql["registered_worker"]
            parts["registered"] = f"AND CASE WHEN total IS NOT NULL THEN EXISTS ({row}) END"
        if floor is None:
            found = self._claimed(connection, "claim", values, **parts)
        else:
            values |= {f"floor_{name}": getattr(floor, name) for name in Floor.__slots__}
            found = self._claimed(connection, "claim_from_floor", values, **parts)
        return None if found and found[0][0] is None else found

    def _claimed(
        self, connection: BaseDatabaseWrapper, name: str, values: Any, **parts: str
    ) -> list[tuple[Any, ...]]:
        """Execute a statement that returns `CLAIMED`, and return its rows as `Claimed` has them."""
        read: dict[str, Callable[[Any], object]] = {
            "id": self.uuid,
            **dict.fromkeys(_TIMES, self.time),
        }
        return [
            tuple(
                read[column](value) if column in read and value is not None else value
                for column, value in zip(CLAIMED, row, strict=True)
            )
            for row in self._rows(connection, name, values, **parts)
        ]

    def candidates(self, connection: BaseDatabaseWrapper, request: ClaimRequest) -> list[Candidate]:
        """Return the best available jobs of a queue, in order and locked.

        Return up to `request.limit` jobs that are open to all claims, and up to as many that are
        open to claims with a rule.
        """
        values = {"queue": request.queue, "limit": request.limit}
        rows = self._candidates(connection, values, ISOLATION[request.isolation])
        rows.sort(key=lambda row: (-row[1], self.time(row[2]), self.uuid(row[0])))
        return [Candidate(self.uuid(id), size, hold) for id, _, _, size, hold in rows]

    def _candidates(
        self, connection: BaseDatabaseWrapper, values: Mapping[str, Any], isolation: str
    ) -> list[Any]:
        statement = self.sql["candidates"].format(isolation=isolation)
        return self.rows(connection, statement, values, is_repeated=True)

    def claim_chosen(
        self,
        connection: BaseDatabaseWrapper,
        keys: Collection[UUID],
        request: ClaimRequest,
    ) -> list[tuple[Any, ...]]:
        """Claim these jobs of the queue, which the caller has locked; otherwise like `claim`.

        If the queue has rules that are not applied, no job is claimed.
        """
        values = claim_values(request)
        values["keys"] = self.ids(keys)
        registered = ""
        if request.registered:
            registered = f"AND EXISTS ({self.sql['registered_worker']})"
        return self._claimed(connection, "claim_chosen", values, registered=registered)

    def oldest_by_queue(
        self, connection: BaseDatabaseWrapper, queues: Collection[str]
    ) -> list[tuple[str, datetime | None]]:
        """Return when the oldest available job of each queue became available."""
        names = ", ".join(["(%s)"] * len(queues))
        rows = self._rows(connection, "oldest_by_queue", list(queues), names=names)
        return [(queue, self.time(since)) for queue, since in rows]

    def known_queues(
        self, connection: BaseDatabaseWrapper, values: Mapping[str, Any], **parts: str
    ) -> list[tuple[int, str | None, str | None, int | None]]:
        """Return known queues by state: (number of queues, name, state, number of jobs).

        `figures.known_queues` gives the parts of the statement.
        """
        parts["count_rows"] = self._count_rows("1 = 1")
        return self._rows(connection, "known_queues", values, **parts)

    def complete(
        self,
        connection: BaseDatabaseWrapper,
        values: Mapping[str, str | int],
        parts: Mapping[str, str] = RUNS_OF_WORKER,
    ) -> list[tuple[Any, ...]]:
        """ACK jobs, given as `finished`, a JSON array of `{id, run, result}`.

        Return the ids of the jobs that the worker `worker_id` still held, and that no other session
        has locked. Where the dialect `has_update_returning`, the statement may have other parts,
        and its rows are returned as the driver has them.
        """
        rows = self._rows(connection, "complete", values, **parts)
        return [(self.uuid(key),) for (key,) in rows] if parts is RUNS_OF_WORKER else rows

    def lock_claimed(
        self, connection: BaseDatabaseWrapper, worker_id: str, claims: str
    ) -> set[tuple[UUID, int]]:
        """Lock jobs of one worker, given as a JSON array of `{id, run}`, in a transaction.

        Return the ids and runs of the jobs that it still holds, and that no other session had
        locked.
        """
        rows = self._rows(connection, "lock_claimed", {"worker_id": worker_id, "claims": claims})
        return {(self.uuid(key), run) for key, run in rows}

    def end_runs(self, connection: BaseDatabaseWrapper, how: EndOfRun, ended: str) -> None:
        """Store how the latest runs of jobs, which the caller has locked, ended.

        `ended` is a JSON array. "add_attempts" adds to the histories (`{id, outcome, error,
        delay_us}`), "retry_failed" lets jobs wait for their next attempts (`{id, error,
        delay_us}`), and "discard_failed" ends them (`{id, error, reason, dead_letter}`).
        """
        self._run(connection, how, {"ended": ended})

    @abstractmethod
    def reschedule(self, connection: BaseDatabaseWrapper, jobs: Mapping[UUID, datetime]) -> int:
        """Reschedule available jobs, locked by the caller, to these times. Return how many."""

    @abstractmethod
    def promote(
        self, connection: BaseDatabaseWrapper, limit: int, queues: Sequence[str] | None = None
    ) -> list[tuple[UUID, str, str]]:
        """Make due jobs available, earliest first. Return (id, queue, state before) of each.

        With `queues`, make up to `limit` jobs of each of these available.
        """

    def counts(
        self,
        connection: BaseDatabaseWrapper,
        by: str,
        *,
        queues: Collection[str] | None = None,
        states: Collection[str] | None = None,
    ) -> list[tuple[Any, ...]]:
        """Return the numbers of jobs and of their bytes, after the columns `by`.

        `by` is "queue", "state" or "queue, state". With `queues` or `states`, only these are
        counted.
        """
        conditions, values = ["1 = 1"], dict[str, str]()
        for column, wanted in (("queue", queues), ("state", states)):
            if wanted is not None:
                some = {f"{column}_{n}": each for n, each in enumerate(wanted)}
                names = ", ".join(f"%({name})s" for name in some)
                conditions.append(f"{column} IN ({names})" if some else "1 = 0")
                values |= some
        rows = self._count_rows(" AND ".join(conditions))
        found = self._rows(connection, "counts", values, by=by, count_rows=rows)
        return [(*keys, int(jobs), int(size)) for *keys, jobs, size in found]

    def _count_rows(self, where: str) -> str:
        return self.sql["count_rows"].format(where=where)

    @abstractmethod
    def fold_counts(self, connection: BaseDatabaseWrapper) -> int:
        """Fold the changes into the counts. Return how many changes there were."""

    @abstractmethod
    def repair_counts(self, connection: BaseDatabaseWrapper) -> list[Difference]:
        """Correct the counts, and return what was wrong."""

    def vacuum_counts(self, connection: BaseDatabaseWrapper) -> None:  # for PostgreSQL only
        """Free the space of changes that were folded into the counts."""

    @abstractmethod
    def lock_unique_keys(
        self, connection: BaseDatabaseWrapper, keys: Sequence[str], *, wait: bool = True
    ) -> bool | None:
        """Lock unique keys, given in hexadecimal, until the transaction ends.

        Return whether the transaction sees what was committed while it waited for them. Without
        `wait`, return None if another transaction has locked one of them.
        """

    def take_back(
        self, connection: BaseDatabaseWrapper, keys: Collection[UUID], *, error: str, spends: bool
    ) -> list[tuple[UUID, str, str, str]]:
        """LAPSE: make active jobs, which the caller has locked, available again.

        If `spends`, the run counts as an attempt, and jobs without a further attempt are discarded.
        The error is JSON. Return (id, queue, type, state) of each.
        """
        values = {"keys": self.ids(keys), "error": error, "spends": spends}
        rows = self._rows(connection, "take_back", values)
        return [(self.uuid(key), queue, type, state) for key, queue, type, state in rows]

    def old_jobs(
        self,
        connection: BaseDatabaseWrapper,
        *,
        state: str,
        dead_letter: bool,
        age: timedelta,
        unneeded: str,
        limit: int,
    ) -> list[UUID]:
        """Return the ids of the oldest jobs of a kind that finished `age` ago or earlier, locked.

        The condition `unneeded`, in SQL, holds for each of them. Jobs that another transaction has
        locked are left out.
        """
        values = {"state": state, "dead_letter": dead_letter, "limit": limit}
        since = self.ago(age.total_seconds())
        rows = self._rows(connection, "old_jobs", values, unneeded=unneeded, since=since)
        return [self.uuid(key) for (key,) in rows]

    def erase(self, connection: BaseDatabaseWrapper, keys: Collection[UUID]) -> int:
        """Delete jobs, which the caller has locked, and their attempts. Return how many jobs."""
        with connection.cursor() as cursor:
            cursor.execute(self.sql["erase"], {"keys": self.ids(keys)})
            return int(cursor.rowcount)

    def api_key(self, connection: BaseDatabaseWrapper, prefix: str) -> str | None:
        """Return the API key with this prefix as a JSON object, or None if there is none.

        The object has the columns, and the current time as `now`.
        """
        found: str | None = self._rows(connection, "api_key", [prefix])[0][0]
        return found

    def dead_workers(
        self, connection: BaseDatabaseWrapper, *, back_for: float = ALWAYS
    ) -> list[tuple[str, Session | None]]:
        """Return workers that count as dead, by id.

        A worker with None has sent no heartbeat for too long, while other workers' heartbeats were
        stored; see `steady`. A worker with a session counts as dead because that session has ended
        on the server; if this role may not see whether it has, the worker is left out. `back_for`
        is for how many seconds the database has been back: without a heartbeat since then, a
        session proves nothing.
        """
        values, parts = {"back_for": back_for}, self._steady_since
        found = self._rows(connection, "dead_workers", values, **parts, among="")
        return [(key, (pid, since) if pid is not None else None) for key, pid, since in found]

    def dead_workers_condition(self, *, back_for: float = ALWAYS, of_lease: bool = False) -> str:
        """Return the SQL condition that `dead_workers` may return a worker.

        `raw_queries.which_hold` asks it together with others. With `of_lease`, it is a condition on
        a row of a lease: the session of its holder has ended.
        """
        found = self.sql["dead_workers"].replace("%(back_for)s", repr(float(back_for)))
        parts = {**self._steady_since, "among": ""}
        if of_lease:
            # Only the session is checked: the lease of a silent holder expires by itself.
            parts = {"steady": "1 = 0", "among": "AND id = ojs_lease.holder"}
        return f"EXISTS ({found.format(**parts)})"

    def steady(self, beat_ms: str = "0") -> str:
        """Return the SQL condition that some worker has stored its heartbeats for a time until now.

        If so, another worker that stored none in this time was not kept from it by the database.
        The time is two of its intervals, or five seconds if that is shorter, and at least `beat_ms`
        milliseconds. `beat_ms` is SQL, which may name columns of the row of the other worker.
        """
        return self.sql["steady"].format(beat_ms=beat_ms)

    @property
    def _steady_since(self) -> dict[str, str]:
        return {"steady": self.steady("worker.dead_after_ms * 2 / 3")}

    def renew_beat(
        self, connection: BaseDatabaseWrapper, worker_id: str, *, interval: int, pid: int | None
    ) -> str | None:
        """Store the heartbeat of a running worker of the project that holds no jobs.

        Return its directive, or None if its row is not as it was registered, with this interval in
        milliseconds and a session of this process id.
        """
        values = {"worker_id": worker_id, "interval": interval, "pid": pid}
        rows = self._rows(connection, "renew_beat", values)
        return str(rows[0][0]) if rows else None
