"""What is wrong now: the findings, and what is read for them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol, TypeVar

from django_ojs.finding import Finding
from django_ojs.operations import queues
from django_ojs.operations.access import key_expiry
from django_ojs.operations.keyset import Page
from django_ojs.operations.maintenance import mode
from django_ojs.operations.maintenance.mode import MaintenanceStatus
from django_ojs.operations.queues import QueueStatus
from django_ojs.reports import findings, health_queries, queue_overview
from django_ojs.reports.health_queries import Observations, Signs
from django_ojs.reports.queue_overview import Listeners, OverviewRow
from django_ojs.spec.states import State
from django_ojs.storage.figures import oldest_available

T = TypeVar("T")

#: The kinds of findings about API keys.
OF_KEYS: Final = frozenset({"api_key_rejected", "api_key_expires"})

#: The most queues that are checked for findings besides the configured ones. They are the ones with
#: the most waiting jobs.
MAX_CHECKED: Final = 500


class Query(Protocol):
    """Runs a named query.

    It returns None if there is no result, for example because the query took too long.
    """

    def __call__(self, name: str, query: Callable[[], T]) -> T | None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueRows:
    """Rows of queues, the fullest first. `are_known` is whether they were read.

    `listening` is None if the workers are not known.
    """

    rows: list[OverviewRow]
    are_known: bool
    listening: Listeners | None


@dataclass(frozen=True, kw_only=True, slots=True)
class CurrentFindings:
    """The findings, and what was read for them."""

    findings: Sequence[Finding]
    listing: Page[QueueStatus] | None
    oldest: Mapping[str, datetime] | None
    queues: QueueRows
    maintenance: MaintenanceStatus | None
    observed: Observations | None
    #: What could not be read.
    unread: Sequence[str]

    @property
    def causes(self) -> list[Finding]:
        """The findings that do not follow from another one."""
        return findings.without_consequences(self.findings)

    def causes_within(self, within: Collection[str] | None) -> list[Finding]:
        """Return the findings that concern these queues, or all if `within` is None.

        The finding that no worker runs concerns no single queue; the finding that no worker takes
        the jobs of a queue concerns that queue.
        """
        if within is None:
            return self.causes
        of_queues = [each for each in self.findings if each.queue in within]
        return findings.without_consequences(of_queues)


def _without_limit(name: str, query: Callable[[], T]) -> T | None:
    return query()


def read(ask: Query = _without_limit, *, with_keys: bool = True) -> CurrentFindings:
    """Return the findings, with the figures from which they follow.

    `with_keys` includes findings about API keys, which the role of a worker may not read.
    """
    unread: list[str] = []

    def query(name: str, query: Callable[[], T]) -> T | None:
        found = ask(name, query)
        if found is None:
            unread.append(name)
        return found

    seen = query("failures", lambda: health_queries.signs(with_keys=with_keys)) or Signs()
    listing = query("queues", lambda: queues.busiest(limit=MAX_CHECKED, with_times=False))
    statuses = listing.rows if listing else []
    waiting = [status.name for status in statuses if status.counts.get(State.AVAILABLE)]
    oldest = query("oldest jobs", lambda: oldest_available.oldest(waiting)) if waiting else {}
    rows = queue_rows(
        query,
        statuses,
        oldest,
        may_be_full=seen.full_queues,
        may_be_nameless=seen.nameless_claims,
    )
    status = maintenance(query) if seen.maintenance_mode else MaintenanceStatus(enabled=False)
    observed = query("failures", lambda: health_queries.observe(seen))
    found = findings.of_system(
        rows.rows,
        observed or Observations(),
        maintenance=status,
        listening=rows.listening,
        transaction=(
            ask("open transactions", health_queries.oldest_transaction)
            if seen.old_transaction
            else None
        ),
        keys=(query("API keys", key_expiry.problems) or ()) if seen.keys else (),
    )
    return CurrentFindings(
        findings=found,
        listing=listing,
        oldest=oldest,
        queues=rows,
        maintenance=status,
        observed=observed,
        unread=list(dict.fromkeys(unread)),
    )


def maintenance(query: Query) -> MaintenanceStatus | None:
    """Return the maintenance mode, or None if it is unknown."""
    return query("maintenance mode", mode.status)


def queue_rows(
    query: Query,
    statuses: Collection[QueueStatus],
    oldest: Mapping[str, datetime] | None = None,
    *,
    may_be_full: bool = True,
    may_be_nameless: bool = True,
) -> QueueRows:
    """Return the rows of these queues; `queue_overview` explains `may_be_…`."""
    listening = query(
        "workers",
        lambda: queue_overview.listeners(statuses, may_be_nameless=may_be_nameless),
    )
    names = [status.name for status in statuses]
    flows = query("throughput", lambda: queue_overview.flows(names))
    by_queue = listening.by_queue if listening else None
    rows = query(
        "pressure",
        lambda: queue_overview.overview(
            statuses,
            flows=flows,
            oldest=oldest or {},
            listens=by_queue,
            may_be_full=may_be_full,
        ),
    )
    return QueueRows(rows=rows or [], are_known=rows is not None, listening=listening)
