"""Problems of a server of MariaDB: its version, its settings, or those of a session."""

from collections.abc import Mapping
from typing import Any, Final

from django.core.checks import CheckMessage, Error, Warning
from django.db.backends.base.base import BaseDatabaseWrapper

#: The least max_allowed_packet, because the largest job is one parameter of a statement.
_PACKET: Final = 16 * 2**20
_OLDEST: Final = (10, 11)
_STRICT: Final = {"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"}


def problems(
    connection: BaseDatabaseWrapper,
    settings: Mapping[str, str],
    *,
    is_utc: bool,
    may_close_tables: bool,
) -> list[CheckMessage]:
    """Return the problems; `settings` are the variables of the session."""
    link: Any = connection  # Django's MySQL backend knows the version.
    options = f"DATABASES[{connection.alias!r}]['OPTIONS']"
    if not link.mysql_is_mariadb:
        return [
            Error(
                f"The server of {connection.alias!r} is MySQL, which lacks statements and types of "
                "MariaDB that django_ojs needs.",
                hint="Use MariaDB 10.11 or newer: docs/how-to/use-mariadb.md. Or keep the jobs in "
                "PostgreSQL or SQLite.",
                id="django_ojs.E003",
            )
        ]
    if link.mysql_version < _OLDEST:
        wanted, version = (".".join(map(str, each)) for each in (_OLDEST, link.mysql_version))
        return [
            Error(f"django_ojs needs MariaDB {wanted}; this is {version}.", id="django_ojs.E004")
        ]
    found: list[CheckMessage] = [
        Warning(
            "Support for MariaDB is new, and not for production: the short test suite passes, but "
            "not all long tests were run.",
            hint="docs/how-to/use-mariadb.md says what was tested, and what is different.",
            id="django_ojs.W006",
        )
    ]
    isolation = settings["tx_isolation"]
    if not isolation.startswith("READ-"):
        found.append(
            _wrong(
                f"transactions have the isolation {isolation}, in which a statement "
                "does not see what was committed while it waited for a lock: limits, bounds and "
                "unique keys would not hold.",
                f"{options}['isolation_level'] = 'read committed'",
            )
        )
    if not is_utc:
        found.append(
            _wrong(
                "the time zone of the session is not UTC, in which Django stores times: jobs would "
                "be due, and leases end, hours too early or too late.",
                f"{options}['init_command'] = \"SET time_zone = '+00:00'\"",
            )
        )
    if not _STRICT & set(settings["sql_mode"].split(",")):
        found.append(
            _wrong(
                "the session is not strict: it would cut off what does not fit into a column.",
                f"{options}['init_command'] = \"SET sql_mode = 'STRICT_TRANS_TABLES'\"",
            )
        )
    if settings["character_set_connection"] != "utf8mb4":
        found.append(
            _wrong(
                f"the session writes {settings['character_set_connection']}, which lacks some "
                "characters of arguments.",
                f"{options}['charset'] = 'utf8mb4'",
            )
        )
    if int(settings["max_allowed_packet"]) < _PACKET:
        found.append(
            Warning(
                f"The server of {connection.alias!r} rejects statements above "
                f"{settings['max_allowed_packet']} bytes: jobs with large arguments, and batches "
                "of them, cannot be stored.",
                hint="Set max_allowed_packet to 16 MiB or more.",
                id="django_ojs.W007",
            )
        )
    if not may_close_tables:  # See `broken_triggers`.
        found.append(
            Warning(
                f"The user of {connection.alias!r} may not close tables. When the server has ended "
                "a statement while it read the triggers of the jobs, no job can be stored or "
                "changed until an operator closes the table.",
                hint="GRANT RELOAD ON *.* TO the user, so that django_ojs closes it.",
                id="django_ojs.W008",
            )
        )
    return found


def _wrong(problem: str, cure: str) -> Error:
    return Error(f"MariaDB: {problem}", hint=cure, id="django_ojs.E010")
