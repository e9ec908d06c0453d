"""The optional indexes of searches in arguments and metadata, one for each of the two columns.

Each change of a job's state writes to every index of its table, so these are an option. With one, a
search for a value that few jobs have finds them all, however old they are.
"""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django_ojs.models import Job
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.storage import database
from django_ojs.storage.dialects.json_contains import JSONContains

#: The columns that can have an index, as the qualifiers of a search name them, and its name.
INDEXES: Final = {"args": "ojs_job_args_search", "meta": "ojs_job_meta_search"}

#: Jobs that an index finds for one search. Of a value that more jobs have, the first ones in the
#: order of the list are soon found without it.
MAX_JOBS: Final = 5_000


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexStatus:
    """The index of a column. `phase` and `share`: of its creation, while another session does it.

    `is_valid` is None where there is none.
    """

    column: str
    name: str
    is_valid: bool | None = None
    size: int = 0
    phase: str | None = None
    share: float | None = None


def is_possible() -> bool:
    """Return whether the database can have these indexes."""
    return database.dialect().has_json_indexes


def status() -> list[IndexStatus]:
    """Return the indexes, whether they exist or not. Only where `is_possible`."""
    dialect, connection = database.dialect(), database.connection()
    builds = dialect.index_builds(connection)
    present = dialect.search_indexes(connection, INDEXES.values())
    found = []
    for column, name in INDEXES.items():
        index, build = present.get(name), builds.get(name)
        found.append(
            IndexStatus(
                column=column,
                name=name,
                is_valid=None if index is None else index.is_valid,
                size=0 if index is None else index.size,
                phase=None if build is None else build.phase,
                share=None if build is None else build.share,
            )
        )
    return found


def create(column: str) -> None:
    """Create the index of a column; one that is not valid is dropped first. Not in a transaction.

    It takes minutes on a large table, and locks out no writer.
    """
    dialect, connection = database.dialect(), database.connection()
    dialect.drop_search_index(connection, INDEXES[column])
    dialect.create_search_index(connection, INDEXES[column], column)


def drop(column: str) -> None:
    """Drop the index of a column, if there is one. Not in a transaction."""
    database.dialect().drop_search_index(database.connection(), INDEXES[column])


def find(which: JobFilter) -> list[UUID] | None:
    """Return the jobs that an index finds for a filter, of which the filter may leave some out.

    None where there is no index for it, or more than `MAX_JOBS` of them.
    """
    dialect, connection = database.dialect(), database.connection()
    if not which.held or which.ids or not dialect.has_json_indexes:
        return None
    present = dialect.search_indexes(connection, INDEXES.values())
    columns = {
        column for column, name in INDEXES.items() if name in present and present[name].is_valid
    }
    held = [each for each in which.held if each.column in columns and each.is_containment]
    if not held:
        return None
    found = Job.primary.order_by()
    for each in held:
        found = found.filter(JSONContains(each))
    with database.atomic(), dialect.by_index(connection):
        keys = list(found.values_list("pk", flat=True)[: MAX_JOBS + 1])
    return None if len(keys) > MAX_JOBS else keys
