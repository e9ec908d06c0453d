"""Why a search finds nothing: no such queue or host, or a value that a member of arguments has."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from django.db.models import F, TextField
from django.db.models.functions import Cast

from django_ojs.conf import settings
from django_ojs.models import Worker
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.jobs.listing import index_scans
from django_ojs.operations.jobs.redaction import redacted_args
from django_ojs.operations.keyset import FIRST_PAGE
from django_ojs.spec import json
from django_ojs.spec.suggestions import nearest
from django_ojs.storage.figures import counts, known_queues

#: How many existing names are compared with the name, and how many the hint lists.
_COMPARED: Final = 1_000
_LISTED: Final = 10

#: How many jobs with the text of a value are looked at, and how many members are returned.
_LOOKED_AT: Final = 20
_MEMBERS: Final = 3


def unknown_name(which: JobFilter) -> str | None:
    """Return a sentence with the existing queues or hosts, if the filter names an unknown one."""
    named = which.queues if which.queue is None else (which.queue,)
    hints = (hint for name in named if (hint := _unknown_queue(which, name)) is not None)
    return next(hints, None) or _unknown_host(which)


def members_with(
    value: str, which: JobFilter, parameters: Callable[[str, Any], Sequence[str]]
) -> list[str]:
    """Return the members of arguments that have a value, such as `args.email`.

    Only the jobs that one scan of the filter reads are searched, and nothing that is redacted.
    `parameters` returns the names of the parameters of a type that take arguments.
    """
    scan = index_scans(which)[0]
    jobs, _end = scan.jobs_of(which, FIRST_PAGE, scan.limit)
    # Each database can search the text of the arguments. The values are compared below.
    text = Cast(F("args"), TextField())
    found = jobs.annotate(text=text).filter(text__contains=json.dumps(value)[1:-1])
    names: dict[str, None] = {}
    for type, args in found.values_list("type", "args")[:_LOOKED_AT]:
        for each in redacted_args(args, parameters(type, args)):
            names |= {f"args.{path}": None for path in _paths(each, value)}
    return list(names)[:_MEMBERS]


def _paths(document: Any, value: str) -> Iterator[str]:
    for key, inner in document.items() if isinstance(document, dict) else ():
        if isinstance(inner, dict):
            yield from (f"{key}.{path}" for path in _paths(inner, value))
        elif not isinstance(inner, list) and str(inner) == value:
            yield key


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
    if counts.by_queue([queue]).get(queue):  # Jobs that ended before the queue was deleted.
        return None
    found = known_queues.by_load(limit=_COMPARED, emptied=True)
    names = list(dict.fromkeys([*settings().queues, *found.names]))
    if not names:
        return f"There is no queue {queue}, and no other queue yet."
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
