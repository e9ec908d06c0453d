"""Why a search finds nothing: the queue or the host that it names does not exist."""

from typing import Final

from django_ojs.conf import settings
from django_ojs.models import Worker
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.spec.suggestions import nearest
from django_ojs.storage.figures import known_queues

#: How many existing names are compared with the name, and how many the hint lists.
_COMPARED: Final = 1_000
_LISTED: Final = 10


def unknown_name(which: JobFilter) -> str | None:
    """Return a sentence with the existing queues or hosts, if the filter names an unknown one."""
    named = which.queues if which.queue is None else (which.queue,)
    hints = (hint for name in named if (hint := _unknown_queue(which, name)) is not None)
    return next(hints, None) or _unknown_host(which)


def _unknown_host(which: JobFilter) -> str | None:
    if which.host is None or Worker.primary.filter(hostname=which.host).exists():
        return None
    hosts = Worker.primary.exclude(hostname="").order_by("hostname")
    names = list(hosts.values_list("hostname", flat=True).distinct()[:_COMPARED])
    if not names:
        return f"No worker on the host {which.host} is registered, and none on another host."
    near = nearest(which.host, names)
    return (
        f"No worker on the host {which.host} is registered. The hosts are {_listed(names)}."
        if near is None
        else (
            f"No worker on the host {which.host} is registered. Did you mean {near}? The hosts "
            f"are {_listed(names)}."
        )
    )


def _unknown_queue(which: JobFilter, queue: str) -> str | None:
    if which.within is not None or queue in settings().queues:
        return None
    if known_queues.by_load(limit=1, emptied=True, within=[queue]).total:
        return None
    found = known_queues.by_load(limit=_COMPARED, emptied=True)
    names = list(dict.fromkeys([*settings().queues, *found.names]))
    if not names:
        return f"There is no queue {queue}, and no other one yet."
    near = nearest(queue, names)
    return (
        f"There is no queue {queue}. The queues are {_listed(names, found.total)}."
        if near is None
        else (
            f"There is no queue {queue}. Did you mean {near}? The queues are "
            f"{_listed(names, found.total)}."
        )
    )


def _listed(names: list[str], total: int = 0) -> str:
    more = ", …" if max(total, len(names)) > _LISTED else ""
    return f"{', '.join(names[:_LISTED])}{more}"
