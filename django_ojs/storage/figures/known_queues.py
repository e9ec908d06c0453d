"""The known queues and their counts: a page by name, or the queues with the highest load.

A producer may make up any number of names. So the database selects and counts them.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from django_ojs.conf import settings
from django_ojs.spec.queue_config import DEFAULT_POLICY
from django_ojs.spec.states import TERMINAL, WAITING, State
from django_ojs.storage import database
from django_ojs.storage.dialects.base import ALL_QUEUES
from django_ojs.storage.figures import counts
from django_ojs.storage.figures.counts import ByState
from django_ojs.storage.queue_configs import DELETED

#: The name that stands for all queues, or all types, that are not listed. No queue or type can have
#: it.
OTHERS: Final = "_other"


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownQueues:
    """Names of queues with their jobs by state, and the number of all matching queues."""

    names: list[str]
    counts: dict[str, ByState]
    total: int


def by_name(
    *,
    after: str | None = None,
    offset: int = 0,
    limit: int = 2**62,
    within: Collection[str] | None = None,
) -> KnownQueues:
    """Return the queues whose names come after `after`, without the first `offset`.

    `within`: only these queues.
    """
    values = {"after": after, "offset": offset, "limit": limit}
    return _query(
        {
            "order": _binary(),
            "with_jobs": "sum(n) <> 0",
            "after": "1 = 1" if after is None else f"{_binary()} > %(after)s",
            "limit": "%(limit)s",
        },
        values,
        within=within,
    )


def by_load(
    *,
    limit: int,
    text: str = "",
    within: Collection[str] | None = None,
    emptied: bool = False,
    known: Collection[str] = (),
) -> KnownQueues:
    """Return the configured queues, and the `limit` others with the most waiting jobs.

    Configured queues come first; each group is sorted by waiting, unfinished and all jobs.
    `text`: only queues whose name contains it. `emptied`: also queues without a row whose jobs were
    all deleted. `known`: these count as configured.
    """
    escaped = text.replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return _query(
        {
            "order": f"configured DESC, waiting DESC, unfinished DESC, jobs DESC, {_binary()}",
            "after": "1 = 1",
            "with_jobs": "1 = 1" if emptied else "sum(n) <> 0",
            "limit": "%(limit)s + (SELECT count(*) FROM ranked WHERE configured = 1)",
        },
        {"limit": limit, "offset": 0, "text": f"%{escaped}%"},
        conditions=["queue LIKE %(text)s ESCAPE '!'"] if text else [],
        within=within,
        known=known,
    )


def _literals(texts: Collection[str]) -> str:
    return ", ".join(f"'{text}'" for text in sorted(texts))


#: Parts of the statement that are the same for each query.
_VALUES: Final = {
    "waiting": _literals(WAITING),
    "unfinished": _literals(set(State) - TERMINAL),
    "reserved": _literals((DEFAULT_POLICY, ALL_QUEUES)),
}


def _query(
    parts: dict[str, str],
    values: dict[str, Any],
    *,
    conditions: Collection[str] = (),
    within: Collection[str] | None,
    known: Collection[str] = (),
) -> KnownQueues:
    in_code, values_in_code = _one_of("in_code", {*settings().queues, *known})
    wanted, values_wanted = ("1 = 1", {}) if within is None else _one_of("within", within)
    values |= {"nothing": "{}", "deleted": f'%"{DELETED}"%'}
    rows = database.dialect().known_queues(
        database.connection(),
        {**values, **values_in_code, **values_wanted},
        **_VALUES,
        in_code=in_code,
        condition=" AND ".join((wanted, *conditions)),
        **parts,
    )
    found = counts.summed((name, state, number) for _, name, state, number in rows if name)
    return KnownQueues(names=list(found), counts=found, total=rows[0][0])


def _one_of(prefix: str, names: Collection[str]) -> tuple[str, dict[str, str]]:
    values = {f"{prefix}_{index}": name for index, name in enumerate(names)}
    if not values:
        return "1 = 0", {}
    return f"queue IN ({', '.join(f'%({key})s' for key in values)})", values


def _binary() -> str:
    # Pages must be in the order in which Python sorts, whatever the collation of the database.
    return f"queue COLLATE {database.dialect().binary_collation}"
