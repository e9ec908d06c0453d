"""The database server: dead rows, what keeps them, the pooler and the clock."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs.command_line.checks.finding import Check, DoctorFinding
from django_ojs.command_line.lists import short_duration
from django_ojs.formatting import grouped
from django_ojs.operations.figures.findings import OLD
from django_ojs.storage import database
from django_ojs.storage.dialects.server import HorizonHolder

#: Dead rows of a table that a healthy autovacuum removes soon.
DEAD_ROWS: Final = 10_000
#: Above this share of the live rows, autovacuum is behind; by default it starts at a fifth.
DEAD_SHARE: Final = 0.5
#: Bytes of a table whose empty space is worth the work, and the share that its rows need at least.
EMPTY_SIZE: Final = 256 * 1024 * 1024
NEEDED_SHARE: Final = 0.25
#: Transactions for which a replica or a slot may keep dead rows.
TRANSACTIONS: Final = 1_000_000
#: The difference of the clocks that is left out.
CLOCK: Final = timedelta(seconds=1)

_SLOWER: Final = gettext_lazy(
    "VACUUM cannot remove rows that were changed since: tables grow, "
    "and claims read more and more dead rows."
)


def _bloat() -> Iterator[DoctorFinding]:
    for table in database.dialect().table_use(database.connection()):
        if not table.autovacuum:
            yield DoctorFinding(
                found=_("Autovacuum is off for %(table)s.") % {"table": table.name},
                why=_("Dead rows stay: the table grows, and claims get slower with each job."),
                cure=_(
                    "ALTER TABLE %(table)s RESET (autovacuum_enabled); and autovacuum "
                    "= on in postgresql.conf."
                )
                % {"table": table.name},
            )
        if table.dead > DEAD_ROWS and table.dead > table.live * DEAD_SHARE:
            yield DoctorFinding(
                found=_("%(table)s has %(dead)s dead rows and %(live)s live ones.")
                % {"table": table.name, "dead": grouped(table.dead), "live": grouped(table.live)},
                why=_(
                    "Claims and pages read the dead rows too, and the table stays "
                    "larger than its jobs."
                ),
                cure=_(
                    "VACUUM (ANALYZE) %(table)s; If they stay: see what holds the "
                    "horizon. If they come back: make autovacuum run more often on "
                    "this table."
                )
                % {"table": table.name},
            )
        if (
            table.needed is not None
            and table.size > EMPTY_SIZE
            and table.needed < table.size * NEEDED_SHARE
        ):
            yield DoctorFinding(
                found=_("%(table)s has %(size)s MiB, and its rows need about %(needed)s MiB.")
                % {
                    "table": table.name,
                    "size": grouped(table.size >> 20),
                    "needed": grouped(table.needed >> 20),
                },
                why=_(
                    "The empty space is used again, but never given back: scans, "
                    "backups and the cache pay for it."
                ),
                cure=_(
                    "VACUUM (FULL, ANALYZE) %(table)s; It locks the table until it is "
                    "done: stop the workers and the site, or use pg_repack."
                )
                % {"table": table.name},
            )


def _horizon() -> Iterator[DoctorFinding]:
    for holder in database.dialect().horizon(database.connection()):
        match holder.kind:
            case "transaction" if _is_old(holder):
                yield DoctorFinding(
                    found=_(
                        "A transaction has been open for %(age)s: session %(name)s (%(detail)s)."
                    )
                    % {"age": _age(holder), "name": holder.name, "detail": holder.detail},
                    why=str(_SLOWER),
                    cure=_(
                        "See what it does (SELECT query FROM pg_stat_activity WHERE pid = "
                        "%(name)s;), and end it: SELECT pg_terminate_backend(%(name)s);"
                    )
                    % {"name": holder.name},
                )
            case "prepared" if _is_old(holder):
                yield DoctorFinding(
                    found=_(
                        "The prepared transaction %(name)r of %(detail)s has been open for %(age)s."
                    )
                    % {"name": holder.name, "detail": holder.detail, "age": _age(holder)},
                    why=" ".join((str(_SLOWER), _("It keeps its locks, also over a restart."))),
                    cure=f"COMMIT PREPARED '{holder.name}'; or ROLLBACK PREPARED '{holder.name}';",
                )
            case "slot" if not holder.active or (holder.transactions or 0) >= TRANSACTIONS:
                text = (
                    _(
                        "The replication slot %(name)s (%(detail)s) is behind; it keeps "
                        "%(transactions)s transactions and %(size)s MiB of WAL."
                    )
                    if holder.active
                    else _(
                        "The replication slot %(name)s (%(detail)s) is not used; it keeps "
                        "%(transactions)s transactions and %(size)s MiB of WAL."
                    )
                )
                yield DoctorFinding(
                    found=text
                    % {
                        "name": holder.name,
                        "detail": holder.detail,
                        "transactions": grouped(holder.transactions or 0),
                        "size": grouped((holder.wal_bytes or 0) >> 20),
                    },
                    why=" ".join((_("The disk fills with WAL that nothing reads."), str(_SLOWER))),
                    cure=_(
                        "Start its subscriber; or, if there is none any more: SELECT "
                        "pg_drop_replication_slot('%(name)s');"
                    )
                    % {"name": holder.name},
                )
            case "replica" if (holder.transactions or 0) >= TRANSACTIONS:
                yield DoctorFinding(
                    found=_(
                        "The replica %(name)s (%(detail)s) holds the horizon "
                        "%(transactions)s transactions back."
                    )
                    % {
                        "name": holder.name,
                        "detail": holder.detail,
                        "transactions": grouped(holder.transactions or 0),
                    },
                    why=str(_SLOWER),
                    cure=_("End its long queries, or set hot_standby_feedback = off on it."),
                )


def _is_old(holder: HorizonHolder) -> bool:
    return holder.age is not None and holder.age >= OLD


def _age(holder: HorizonHolder) -> str:
    return short_duration(holder.age.total_seconds() if holder.age else 0)


def _pooler() -> Iterator[DoctorFinding]:
    connection, dialect = database.connection(), database.dialect()
    if dialect.session(connection) is not None:
        return
    if not connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"):
        yield DoctorFinding(
            found=_(
                "The connection goes through a pooler (such as PgBouncer in transaction mode), "
                "and server-side cursors are not disabled."
            ),
            why=_(
                "The cursor of an iterator() is on another connection than its next fetch, which "
                "fails. LISTEN does not work there either: workers that connect through the pooler "
                "find jobs by polling, and one that died is noticed by its missed heartbeats only."
            ),
            cure=_(
                "DATABASES[%(alias)r]['DISABLE_SERVER_SIDE_CURSORS'] = True. Connect the workers "
                "to PostgreSQL directly, or accept polling."
            )
            % {"alias": connection.alias},
        )


def _clock() -> Iterator[DoctorFinding]:
    before = timezone.now()
    there = database.dialect().clock(database.connection())
    after = timezone.now()
    # The time of the query itself is no difference.
    away = max(there - after, before - there)
    if away > CLOCK:
        text = (
            _("The database's clock is %(duration)s ahead of the clock of this machine.")
            if there > after
            else _("The database's clock is %(duration)s behind the clock of this machine.")
        )
        yield DoctorFinding(
            found=text % {"duration": short_duration(away.total_seconds())},
            why=_(
                "The database decides what is due. Times that this machine "
                "computes, such as scheduled_at and the times of ids, are early or "
                "late by as much."
            ),
            cure=_(
                "Synchronize both clocks: `chronyc tracking` or `timedatectl` "
                "shows whether they are."
            ),
        )


def _is_server() -> bool:
    return database.dialect().is_server


CHECKS: Final = tuple(
    Check(name=name, about=about, run=run, applies=_is_server)
    for name, about, run in (
        ("bloat", gettext_lazy("Dead rows, empty space and autovacuum"), _bloat),
        ("horizon", gettext_lazy("Open transactions and replication slots"), _horizon),
        ("pooler", gettext_lazy("The pooler"), _pooler),
        ("clock", gettext_lazy("The clock"), _clock),
    )
)
