"""What a relative of PostgreSQL may lack, and what is used in its place."""

from collections.abc import Iterator
from dataclasses import dataclass, fields


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    """The features of PostgreSQL that the project's settings let django_ojs use.

    The fields are settings in lower case. The schema follows them too (see `migrations.sql`).
    """

    #: Triggers for each statement, with transition tables. Without: for each row.
    statement_triggers: bool = True
    #: Advisory locks of a transaction. Without: locks of the rows of `ojs_lock`.
    advisory_locks: bool = True
    #: Procedures that store jobs. Without: INSERT.
    procedures: bool = True
    #: `pg_stat_activity` lists the sessions of all workers. Without: only heartbeats count.
    server_sessions: bool = True

    def missing(self) -> Iterator[str]:
        """Return the names of those that are not used."""
        return (field.name for field in fields(self) if not getattr(self, field.name))


ALL = Capabilities()
