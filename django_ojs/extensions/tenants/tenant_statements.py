"""The statements about tenants, for each kind of database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, Final

from django_ojs.claim_rules import Condition
from django_ojs.extensions.tenants.spec import DEFAULT_TENANT, MARK, MAX_LENGTH
from django_ojs.spec import json
from django_ojs.spec.envelope import MAX_PRIORITY
from django_ojs.spec.isolation import Isolation
from django_ojs.spec.states import WAITING
from django_ojs.storage import database
from django_ojs.storage.dialects.base import ISOLATION, Dialect
from django_ojs.storage.dialects.rows import Candidate
from django_ojs.storage.statements import Statements

#: Greater than the id of any tenant.
_AFTER_TENANTS: Final = "~"
_IS_MARKED: Final = f"marks & {MARK} <> 0"


@dataclass(frozen=True, slots=True)
class Turn:
    """Jobs of a tenant and priority that a claim is to find: `number` after the first `skip`."""

    priority: int
    tenant: str
    skip: int
    number: int


@dataclass(frozen=True, slots=True)
class TurnJob:
    """An available job that was found for a turn."""

    priority: int
    tenant: str
    enqueued_at: datetime
    candidate: Candidate


class TenantStatements:
    """The statements of SQLite. Subclasses for other databases override some."""

    #: The tenant of a job in SQL, as its index has it.
    tenant: ClassVar[str] = f"""CASE WHEN json_type(meta, '$.tenant_id') = 'text'
        AND meta ->> '$.tenant_id' GLOB '[a-zA-Z0-9]*'
        AND meta ->> '$.tenant_id' NOT GLOB '*[^a-zA-Z0-9._:-]*'
        AND length(meta ->> '$.tenant_id') <= {MAX_LENGTH}
        THEN meta ->> '$.tenant_id' ELSE '{DEFAULT_TENANT}' END"""
    #: The condition that a job has the mark of this extension.
    marked: ClassVar[str] = _IS_MARKED

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        states = ", ".join(f"'{state.value}'" for state in sorted(WAITING))
        self.files: Final = Statements(
            Path(__file__).parent / "statements",
            tenant=self.tenant,
            marked=self.marked,
            # The planner uses the index only if the list is the same as in its condition.
            is_waiting=f"IN ({states})",
        )

    def admit(self, queue: str, tenant: str, *, jobs: int, bound: int) -> bool:
        """Return whether a tenant has room for jobs in a queue, far from its bound.

        It also returns False if only a count under the tenant's lock can decide.
        """
        return False

    def lock(self, queue: str, tenant: str, timeout: float) -> bool:
        """Lock a tenant of a queue until the transaction ends, so that no other adds jobs to it.

        Wait for the transactions that have added jobs to it. Raises OperationalError after
        `timeout` seconds, or on a deadlock. Return False if the transaction sees only what was
        committed before it began.
        """
        self._dialect.begin_write(database.connection())
        return True

    def depth(self, queue: str, tenant: str) -> int:
        """Count the waiting jobs of a tenant in a queue."""
        return int(self.files.rows("depth", {"queue": queue, "tenant": tenant})[0][0])

    def busiest(self, queue: str, limit: int) -> list[tuple[str, int]]:
        """Return the tenants of a queue with the most waiting jobs, and how many each has."""
        return self.files.rows("busiest", {"queue": queue, "limit": limit})

    def in_turn(self, queue: str, starts: Mapping[int, str], limit: int) -> list[tuple[int, str]]:
        """Return (priority, tenant) of the available jobs of a queue that has tenants.

        The highest priority comes first. In each priority, the tenants after its start come first,
        by name, and then the others.
        """
        found: list[tuple[int, str]] = []
        values: dict[str, Any] = {"queue": queue, "priority": MAX_PRIORITY + 1}
        while rows := self.files.rows("priority_below", values):
            values["priority"] = rows[0][0]
            start = starts.get(rows[0][0], "")
            for after, last in ((start, _AFTER_TENANTS), ("", start)):
                values |= {"after": after, "last": last}
                while names := self.files.rows("next_tenant", values):
                    values["after"] = names[0][0]
                    found.append((rows[0][0], names[0][0]))
                    if len(found) == limit:
                        return found
        return found

    def jobs(
        self,
        queue: str,
        turns: Sequence[Turn],
        *,
        limit: int,
        condition: Condition,
        isolation: Isolation,
    ) -> list[TurnJob]:
        """Return the best available jobs of these turns for which the condition holds, locked.

        There are at most `limit` jobs, from the first turns.
        """
        found: list[TurnJob] = []
        for turn in turns:
            number = min(turn.number, limit - len(found))
            if number > 0:
                values: dict[str, Any] = {"queue": queue, "priority": turn.priority}
                values |= {"tenant": turn.tenant, "skip": turn.skip, "number": number}
                found += self._jobs(values, isolation, condition)
        return found

    def _jobs(
        self, values: Mapping[str, Any], isolation: Isolation, condition: Condition
    ) -> list[TurnJob]:
        text, own = condition
        parts = {"isolation": ISOLATION[isolation], "condition": text and f" AND {text}"}
        rows = self.files.rows("turn_jobs", {**values, **own}, is_repeated=True, **parts)
        return [self._job(row) for row in rows]

    def _job(self, row: Sequence[Any]) -> TurnJob:
        id, priority, tenant, enqueued_at, size, hold = row
        at = self._dialect.time(enqueued_at)
        assert at is not None, "an available job has it"
        return TurnJob(priority, tenant, at, Candidate(self._dialect.uuid(id), size, hold))


class _PostgreSQL(TenantStatements):
    """The tenants in turn, and their jobs, are one statement each; locks are advisory."""

    tenant = "ojs_tenant(meta)"

    def admit(self, queue: str, tenant: str, *, jobs: int, bound: int) -> bool:
        from django_ojs.storage.dialects.postgresql import locks_that_fit

        values = {"queue": queue, "tenant": tenant, "jobs": jobs, "bound": bound}
        with locks_that_fit():
            admitted = self.files.rows("admit", values)[0][0]
        if admitted is None:
            # This transaction now has the shared lock. Another one, which adds no jobs, can count.
            count = partial(self.files.rows, "admit", {**values, "jobs": 0})
            admitted = database.elsewhere(count)[0][0]
        return bool(admitted)

    def lock(self, queue: str, tenant: str, timeout: float) -> bool:
        values = {"queue": queue, "tenant": tenant, "timeout": f"{int(timeout * 1000)}ms"}
        former, _, locked, _ = self.files.rows("lock", values)[0]
        self.files.rows("set_lock_timeout", {"timeout": former})
        return bool(locked)

    def in_turn(self, queue: str, starts: Mapping[int, str], limit: int) -> list[tuple[int, str]]:
        values = {"queue": queue, "starts": json.dumps(dict(starts)), "limit": limit}
        return self.files.rows("tenants_in_turn", values, is_repeated=True)

    def jobs(
        self,
        queue: str,
        turns: Sequence[Turn],
        *,
        limit: int,
        condition: Condition,
        isolation: Isolation,
    ) -> list[TurnJob]:
        values: dict[str, Any] = {"queue": queue, "limit": limit}
        values["priorities"] = [turn.priority for turn in turns]
        values["tenants"] = [turn.tenant for turn in turns]
        values["skip"] = [turn.skip for turn in turns]
        values["numbers"] = [turn.number for turn in turns]
        return self._jobs(values, isolation, condition)


class _MariaDB(TenantStatements):
    """The tenant is a column, because no index can have an expression. Locks are row locks."""

    #: The dialect of MariaDB, which can lock a part of a queue.
    _dialect: Any
    tenant = "tenant"
    marked = "tenant IS NOT NULL"

    def admit(self, queue: str, tenant: str, *, jobs: int, bound: int) -> bool:
        admitted: bool = self._dialect.admit_part(
            database.connection(),
            _part(queue, tenant),
            cost=jobs,
            bound=bound,
            room=lambda: bound - self.depth(queue, tenant),
        )
        return admitted

    def lock(self, queue: str, tenant: str, timeout: float) -> bool:
        link, part = database.connection(), _part(queue, tenant)
        sees_others: bool = self._dialect.lock_part(link, part, timeout)
        return sees_others


def _part(queue: str, tenant: str) -> str:
    return f"{queue}\n{tenant}"


_BY_NAME: Final = {"postgresql": _PostgreSQL, "sqlite": TenantStatements, "mariadb": _MariaDB}


def statements() -> TenantStatements:
    """Return the statements for the database of the jobs."""
    return _of(database.dialect())


@cache
def _of(dialect: Dialect) -> TenantStatements:
    return _BY_NAME[dialect.name](dialect)
