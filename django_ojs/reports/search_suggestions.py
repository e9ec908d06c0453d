"""What a search box suggests while the user types: qualifiers, and values that exist."""

from typing import Final

from django_ojs.hooks import registry
from django_ojs.models import Worker
from django_ojs.operations.jobs.search_query import as_value
from django_ojs.reports import ended_workers
from django_ojs.spec.states import State
from django_ojs.storage.figures import known_queues

#: The most values of one qualifier.
MAX_VALUES: Final = 200
#: The most workers whose types and hosts are read.
_MAX_WORKERS: Final = 200
#: How many of the latest unsuccessful runs are read for types of errors.
_MAX_RUNS: Final = 500


def values() -> dict[str, list[str]]:
    """Return the known values by qualifier, at most `MAX_VALUES` of each, and no payload.

    Queues are those with a configuration or the most waiting jobs, and types are those with
    handlers in workers. Extensions add their own values.
    """
    reported = Worker.primary.order_by("-seen_at").values_list("hostname", "job_types", "pk")
    workers = list(reported[:_MAX_WORKERS])
    failed = ended_workers.latest_runs().order_by("-pk").values_list("error__type", flat=True)
    errors = {type for type in failed[:_MAX_RUNS] if type and type.isprintable()}
    types = {type for _, handled, _ in workers for type in handled}
    found: dict[str, list[str]] = {
        "state": list(State),
        "is": ["dead", "alive"],
        "queue": sorted(known_queues.by_load(limit=MAX_VALUES).names[:MAX_VALUES]),
        "type": sorted(types)[:MAX_VALUES],
        "host": sorted({host for host, _, _ in workers if host})[:MAX_VALUES],
        "worker": sorted(as_value(key) for _, _, key in workers)[:MAX_VALUES],
        "error_type": sorted(map(as_value, errors))[:MAX_VALUES],
    }
    for word, more in registry.brought("suggestions"):
        found[word] = sorted({*found.get(word, ()), *more})[:MAX_VALUES]
    return found
