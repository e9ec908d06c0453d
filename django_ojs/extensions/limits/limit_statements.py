"""The SQL statements about limits, for each kind of database."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple
from uuid import UUID

from django_ojs.claim_rules import Condition
from django_ojs.extensions.limits.models import OPEN
from django_ojs.models import Job
from django_ojs.spec import json
from django_ojs.storage import database
from django_ojs.storage.dialects.base import ISOLATION, Dialect
from django_ojs.storage.dialects.expressions import OneOf
from django_ojs.storage.dialects.rows import Candidate, ClaimRequest
from django_ojs.storage.statements import Statements


@dataclass(frozen=True, slots=True)
class KeyCandidate(Candidate):
    """An available job with a limit by key. `policy` is its `rate_limit` as JSON."""

    key: str
    policy: str | None
    #: Whether this transaction has the lock of the key.
    is_locked: bool


class KeyRow(NamedTuple):
    """How much of its limits a key uses; times are in milliseconds since 1970.

    `starts` and `override` are JSON. Most values are None if nothing is stored about the key.
    """

    key: str
    active: int
    starts: str | None
    override: str | None
    paused_until: int | None
    limited_by: str | None
    eased_at: int | None
    rescheduled_until: int | None
    dropped: int | None
    dropped_at: int | None
    now: int


class LimitUse(NamedTuple):
    """The limits of a queue, and how much of them it uses; `now` is in milliseconds since 1970.

    `starts` and the configurations are JSON, or None without a row. `is_exact` is whether the
    statement saw all that was committed before it.
    """

    queue: str
    active: int
    starts: str | None
    now: int
    is_exact: int
    config: str | None
    default_config: str | None


class LimitStatements:
    """The statements of PostgreSQL and SQLite. Those of MariaDB differ in parts."""

    #: The limit key of a job, as the same SQL expression that is indexed.
    limit_key: ClassVar[str]
    #: The condition that the key of a job with a limit is not busy. It is false in a transaction of
    #: one snapshot (REPEATABLE READ), which cannot see that others have used the key since.
    is_free: ClassVar[str] = ""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._files: Final = Statements(
            Path(__file__).parent / "statements",
            limit_key=self.limit_key,
            collation=dialect.binary_collation,
        )

    def queues_use(self, queues: Collection[str]) -> list[LimitUse]:
        """Return the limits of queues and their use, exact while the limits are locked."""
        return [LimitUse(*row) for row in self._of_keys("queues_use", queues)]

    def store_starts(self, queue: str, starts: str) -> None:
        """Store the starts of a queue with a rate, given as JSON."""
        self._files.rows("store_starts", {"queue": queue, "starts": starts}, is_repeated=True)

    def candidates(
        self, request: ClaimRequest, limited: int, busy: Collection[str]
    ) -> list[Candidate]:
        """Return the best available jobs of a queue, in order and locked, and lock their keys.

        These are up to `request.limit` jobs that are open to all claims, and up to `limited` jobs
        that are open only to claims with a rule, and whose key is not in `busy`.
        """
        values = {"queue": request.queue, "limit": request.limit, "limited": limited}
        values["busy"] = self._dialect.texts(busy)
        rows = self._candidates(values, ISOLATION[request.isolation])
        uuid, time = self._dialect.uuid, self._dialect.time
        rows.sort(key=lambda row: (-row[1], time(row[2]), uuid(row[0])))
        return [
            Candidate(uuid(id), size, hold)
            if key is None
            else KeyCandidate(uuid(id), size, hold, key, policy, bool(is_locked))
            for id, _, _, size, hold, key, policy, is_locked in rows
        ]

    def locked(self, jobs: Collection[Candidate]) -> list[KeyCandidate]:
        """Lock the keys of these jobs, and return the jobs that have a key."""
        by_id = {job.id: job for job in jobs}
        rows = Job.primary.filter(OneOf("pk", by_id)).values_list("pk", "options")
        keyed = [(by_id[id], options) for id, options in rows if "limit_key" in options]
        locked = self.try_lock({options["limit_key"] for _, options in keyed})
        return [
            KeyCandidate(
                job.id,
                job.size,
                job.hold,
                key := options["limit_key"],
                json.dumps(options.get("rate_limit") or {}),
                key in locked,
            )
            for job, options in keyed
        ]

    def not_busy(self, busy: Collection[str]) -> Condition:
        """Return the condition that a job has no key, or a key that is not among these."""
        if not self.is_free:
            return "", {}
        return f"(hold <> {OPEN} OR ({self.is_free}))", {"busy_keys": self._dialect.texts(busy)}

    def try_lock(self, keys: Collection[str]) -> Collection[str]:
        """Lock keys without waiting, and return those that this transaction has locked."""
        return keys  # The write lock of SQLite is the lock of every key.

    def _candidates(self, values: Mapping[str, Any], isolation: str) -> list[Any]:
        return self._files.rows("candidates", values, is_repeated=True, isolation=isolation)

    def keys_use(self, keys: Collection[str]) -> list[KeyRow]:
        """Return how much of its limits each key uses; exact while the keys are locked."""
        return [KeyRow(*row) for row in self._of_keys("keys_use", keys)]

    def keys_waiting(self, keys: Collection[str], most: int) -> list[tuple[str, int, str | None]]:
        """Return how many jobs of each key wait, exact up to `most`, and a job's policy as JSON."""
        return self._of_keys("keys_waiting", keys, most=most)

    def _of_keys(self, name: str, keys: Collection[str], **values: Any) -> list[Any]:
        return self._files.rows(
            name, {"keys": self._dialect.texts(keys), **values}, is_repeated=True
        )

    def keys(self, limit: int) -> list[str]:
        """Return the first keys that have waiting or active jobs, or a stored row."""
        return [key for (key,) in self._files.rows("keys", {"limit": limit})]

    def due_keys(self, limit: int) -> list[tuple[str, bool]]:
        """Lock the keys that are to be checked. Return each, and whether it could be locked."""
        rows = self._files.rows("due_keys", {"limit": limit}, is_repeated=True)
        return [(key, bool(is_locked)) for key, is_locked in rows]

    def held_jobs(
        self, keys: Collection[str], limit: int, rule: int
    ) -> list[tuple[str, str, UUID, str | None]]:
        """Return the best held jobs of these keys, up to `limit` of each key and queue, locked.

        Only queues with this rule are read. Each job is (key, queue, id, JSON of its policy), in
        order.
        """
        rows = self._held_jobs(keys, limit, rule)
        return [(key, queue, self._dialect.uuid(id), policy) for key, queue, id, policy in rows]

    def _held_jobs(self, keys: Collection[str], limit: int, rule: int) -> list[Any]:
        return self._of_keys("held_jobs", keys, limit=limit, rule=rule)

    def held_behind(
        self, *, key: str, queue: str, policies: Collection[str], behind: int, limit: int
    ) -> list[tuple[UUID, str | None]]:
        """Return the best held jobs of a key and queue with other policies than these, locked.

        These are up to `limit` of the best `behind` jobs, each as (id, JSON of its policy), in
        order.
        """
        values = {"key": key, "queue": queue, "behind": behind, "limit": limit}
        values["policies"] = self._dialect.texts(policies)
        return [(self._dialect.uuid(id), policy) for id, policy in self._held_behind(values)]

    def _held_behind(self, values: Mapping[str, Any]) -> list[Any]:
        return self._files.rows("held_behind", values)

    def full_queues(self, queues: Collection[str]) -> list[str]:
        """Return in which of these queues all available jobs are held, if no key is due."""
        return [queue for (queue,) in self._of_keys("full_queues", queues)]

    def recheck(self) -> int:
        """Append to the journal the keys whose jobs are held without a reason. Return how many."""
        with database.connection().cursor() as cursor:
            cursor.execute(self._files.text("recheck"), {})
            return int(cursor.rowcount)


class _PostgreSQL(LimitStatements):
    limit_key = "(options ->> 'limit_key')"
    is_free = (
        "options ->> 'limit_key' <> ALL(%(busy_keys)s::text[]) "
        "AND current_setting('transaction_isolation') LIKE 'read %%'"
    )

    def try_lock(self, keys: Collection[str]) -> Collection[str]:
        return {key for key, is_locked in self._of_keys("lock_keys", keys) if is_locked}


class _SQLite(LimitStatements):
    limit_key = "(options ->> '$.limit_key')"


class _MariaDB(LimitStatements):
    """On MariaDB a derived table cannot refer to an outer row, so statements are about one key."""

    #: The dialect of MariaDB, which has `try_lock_keys`.
    _dialect: Any
    limit_key = "JSON_VALUE(options, '$.limit_key')"
    is_free = f"{limit_key} NOT IN %(busy_keys)s AND @@tx_isolation LIKE 'READ-%%'"

    #: The most keys of a statement that repeats a part for each key.
    _KEYS: Final = 100
    #: How many rows a recursion in one statement makes: less than max_recursive_iterations.
    _RECURSION: Final = 500

    def candidates(
        self, request: ClaimRequest, limited: int, busy: Collection[str]
    ) -> list[Candidate]:
        found = super().candidates(request, limited, busy)
        locked = self.try_lock({each.key for each in found if isinstance(each, KeyCandidate)})
        return [
            replace(each, is_locked=each.key in locked) if isinstance(each, KeyCandidate) else each
            for each in found
        ]

    def _candidates(self, values: Mapping[str, Any], isolation: str) -> list[Any]:
        rows = self._files.rows("free_candidates", values, isolation=isolation)
        return rows + super()._candidates(values, isolation)

    def _of_keys(self, name: str, keys: Collection[str], **values: Any) -> list[Any]:
        """Return the rows of a statement about one key, run for many keys at once."""
        statement, found, names = self._files.text(name), list[Any](), sorted(keys)
        for start in range(0, len(names), self._KEYS):
            part = names[start : start + self._KEYS]
            texts = [statement.replace("%(key)s", f"%(key{n})s") for n in range(len(part))]
            named = {f"key{n}": key for n, key in enumerate(part)}
            with database.connection().cursor() as cursor:
                cursor.execute(" UNION ALL ".join(texts), values | named)
                found += cursor.fetchall()
        return found

    def keys(self, limit: int) -> list[str]:
        found: list[str] = []
        while len(found) < limit:
            number = min(limit - len(found), self._RECURSION)
            values = {"after": found[-1] if found else "", "number": number}
            more = [key for (key,) in self._files.rows("keys", values)]
            found += more
            if len(more) < number:
                break
        return found

    def due_keys(self, limit: int) -> list[tuple[str, bool]]:
        keys = [key for key, _ in super().due_keys(limit)]
        locked = self.try_lock(keys)
        return [(key, key in locked) for key in keys]

    def _held_jobs(self, keys: Collection[str], limit: int, rule: int) -> list[Any]:
        queues = [name for (name,) in self._files.rows("ruled_queues", {"rule": rule})]
        return [
            row
            for key in sorted(keys)
            for queue in queues
            for row in self._files.rows("held_jobs", {"key": key, "queue": queue, "limit": limit})
        ]

    def _held_behind(self, values: Mapping[str, Any]) -> list[Any]:
        found = [id for (id,) in self._files.rows("held_behind", values)]
        if not found:
            return []
        policy = dict(self._files.rows("lock_held", {"ids": found}))
        return [(id, policy[id]) for id in found if id in policy]

    def try_lock(self, keys: Collection[str]) -> Collection[str]:
        locked: set[str] = self._dialect.try_lock_keys(database.connection(), keys)
        return locked


_BY_NAME: Final = {"postgresql": _PostgreSQL, "sqlite": _SQLite, "mariadb": _MariaDB}


def statements() -> LimitStatements:
    """Return the statements for the database of the jobs."""
    return _of(database.dialect())


@cache
def _of(dialect: Dialect) -> LimitStatements:
    return _BY_NAME[dialect.name](dialect)
