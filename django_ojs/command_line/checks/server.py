"""The database server: dead rows, what keeps them, the pooler and the clock."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from django.utils import timezone

from django_ojs.command_line.checks.finding import Check
from django_ojs.command_line.lists import short_duration
from django_ojs.finding import Finding, Severity
from django_ojs.formatting import grouped
from django_ojs.reports.health_queries import OLD
from django_ojs.storage import database
from django_ojs.storage.dialects.server import HorizonHolder, TableUse

#: Up to this many dead rows are no finding, because autovacuum removes them soon.
DEAD_ROWS: Final = 10_000
#: Above this share of the live rows, dead rows are a finding: by default, autovacuum starts at 0.2.
DEAD_SHARE: Final = 0.5
#: Empty space is a finding if the table has more than `EMPTY_SIZE` bytes, and its rows need less
#: than `NEEDED_SHARE` of them.
EMPTY_SIZE: Final = 256 * 1024 * 1024
NEEDED_SHARE: Final = 0.25
#: For how many transactions a replica or a slot may keep dead rows.
TRANSACTIONS: Final = 1_000_000
#: A smaller difference of the clocks is ignored.
CLOCK: Final = timedelta(seconds=1)

_SLOWER: Final = (
    "VACUUM cannot remove rows that have died since then: tables grow, "
    "and claims read more and more dead rows."
)


def _bloat() -> Iterator[Finding]:
    for table in database.dialect().read(database.connection(), TableUse):
        if not table.autovacuum:
            yield Finding(
                kind="autovacuum_off",
                subject=table.name,
                severity=Severity.ADVICE,
                text=f"Autovacuum is off for {table.name}.",
                why="Dead rows stay: the table grows, and claims get slower with each job.",
                cure=(
                    f"ALTER TABLE {table.name} RESET (autovacuum_enabled); and autovacuum = on in "
                    "postgresql.conf."
                ),
            )
        if table.dead > DEAD_ROWS and table.dead > table.live * DEAD_SHARE:
            yield Finding(
                kind="dead_rows",
                subject=table.name,
                severity=Severity.ADVICE,
                text=(
                    f"{table.name} has {grouped(table.dead)} dead rows and {grouped(table.live)} "
                    "live ones."
                ),
                why=(
                    "Claims and pages read the dead rows too, and the table stays "
                    "larger than its jobs."
                ),
                cure=(
                    f"VACUUM (ANALYZE) {table.name}; If they stay: see what holds the horizon. If "
                    "they come back: make autovacuum run more often on this table."
                ),
            )
        if (
            table.needed is not None
            and table.size > EMPTY_SIZE
            and table.needed < table.size * NEEDED_SHARE
        ):
            yield Finding(
                kind="empty_space",
                subject=table.name,
                severity=Severity.ADVICE,
                text=(
                    f"{table.name} has {grouped(table.size >> 20)} MiB, and its rows need about "
                    f"{grouped(table.needed >> 20)} MiB."
                ),
                why=(
                    "The empty space is used again, but never given back: scans, "
                    "backups and the cache pay for it."
                ),
                cure=(
                    f"VACUUM (FULL, ANALYZE) {table.name}; It locks the table until it is done: "
                    "stop the workers and the site, or use pg_repack."
                ),
            )


def _horizon() -> Iterator[Finding]:
    for holder in database.dialect().read(database.connection(), HorizonHolder):
        match holder.kind:
            case "transaction" if _is_old(holder):
                yield Finding(
                    kind="transaction_old",
                    subject=holder.name,
                    text=(
                        f"A transaction has been open for {_age(holder)}: session {holder.name} "
                        f"({holder.detail})."
                    ),
                    why=_SLOWER,
                    cure=(
                        "See what it does (SELECT query FROM pg_stat_activity WHERE pid = "
                        f"{holder.name};), and end it: SELECT pg_terminate_backend({holder.name});"
                    ),
                )
            case "prepared" if _is_old(holder):
                yield Finding(
                    kind="transaction_prepared",
                    subject=holder.name,
                    text=(
                        f"The prepared transaction {holder.name!r} of {holder.detail} has been "
                        f"open for {_age(holder)}."
                    ),
                    why=" ".join((_SLOWER, "It keeps its locks, even after a restart.")),
                    cure=f"COMMIT PREPARED '{holder.name}'; or ROLLBACK PREPARED '{holder.name}';",
                )
            case "slot" if not holder.active or (holder.transactions or 0) >= TRANSACTIONS:
                text = (
                    f"The replication slot {holder.name} ({holder.detail}) is "
                    f"{'behind' if holder.active else 'not used'}; it holds back "
                    f"{grouped(holder.transactions or 0)} transactions and "
                    f"{grouped((holder.wal_bytes or 0) >> 20)} MiB of WAL."
                )
                yield Finding(
                    kind="slot_behind",
                    subject=holder.name,
                    text=text,
                    why=" ".join(("The disk fills with WAL that nothing reads.", _SLOWER)),
                    cure=(
                        "Start its subscriber; or, if there is none any more: SELECT "
                        f"pg_drop_replication_slot('{holder.name}');"
                    ),
                )
            case "replica" if (holder.transactions or 0) >= TRANSACTIONS:
                yield Finding(
                    kind="replica_behind",
                    subject=holder.name,
                    text=(
                        f"The replica {holder.name} ({holder.detail}) holds the horizon "
                        f"{grouped(holder.transactions or 0)} transactions back."
                    ),
                    why=_SLOWER,
                    cure="End its long queries, or set hot_standby_feedback = off on it.",
                )


def _is_old(holder: HorizonHolder) -> bool:
    return holder.age is not None and holder.age >= OLD


def _age(holder: HorizonHolder) -> str:
    return short_duration(holder.age.total_seconds() if holder.age else 0)


def _pooler() -> Iterator[Finding]:
    connection, dialect = database.connection(), database.dialect()
    if dialect.session(connection) is not None:
        return
    if not connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"):
        yield Finding(
            kind="pooler_cursors",
            text=(
                "The connection goes through a pooler (such as PgBouncer in transaction mode), "
                "and server-side cursors are not disabled."
            ),
            why=(
                "The cursor of an iterator() is on another connection than its next fetch, which "
                "fails. LISTEN does not work there either: workers that connect through the pooler "
                "find jobs by polling, and one that died is noticed by its missed heartbeats only."
            ),
            cure=(
                f"DATABASES[{connection.alias!r}]['DISABLE_SERVER_SIDE_CURSORS'] = True. Connect "
                "the workers to PostgreSQL directly, or accept polling."
            ),
        )


def _clock() -> Iterator[Finding]:
    before = timezone.now()
    there = database.dialect().clock(database.connection())
    after = timezone.now()
    # The time that the query itself took does not count as a difference.
    away = max(there - after, before - there)
    if away > CLOCK:
        text = (
            f"The database's clock is {short_duration(away.total_seconds())} ahead of the clock of "
            "this machine."
            if there > after
            else (
                f"The database's clock is {short_duration(away.total_seconds())} behind the clock "
                "of this machine."
            )
        )
        yield Finding(
            kind="clock_differs",
            text=text,
            why=(
                "The database decides what is due. Times that this machine "
                "computes, such as scheduled_at and the times of ids, are early or "
                "late by as much."
            ),
            cure=(
                "Synchronize both clocks: `chronyc tracking` or `timedatectl` "
                "shows whether they are."
            ),
        )


def _is_server() -> bool:
    return database.dialect().is_server


CHECKS: Final = tuple(
    Check(name=name, about=about, run=run, applies=_is_server)
    for name, about, run in (
        ("bloat", "Dead rows, empty space and autovacuum", _bloat),
        ("horizon", "Open transactions and replication slots", _horizon),
        ("pooler", "The pooler", _pooler),
        ("clock", "The clock", _clock),
    )
)
