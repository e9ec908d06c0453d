"""Why a search finds nothing: the queue that it names does not exist."""

from typing import Final

from django_ojs.conf import settings
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.spec.suggestions import nearest
from django_ojs.storage.figures import known_queues

#: Queues that are compared with the name, and that the hint lists.
_COMPARED: Final = 1_000
_LISTED: Final = 10


def unknown_queue(which: JobFilter) -> str | None:
    """Return a sentence with the queues that exist, if the filter names one that never existed."""
    if which.queue is None or which.within is not None or which.queue in settings().queues:
        return None
    if known_queues.by_load(limit=1, emptied=True, within=[which.queue]).total:
        return None
    found = known_queues.by_load(limit=_COMPARED, emptied=True)
    names = list(dict.fromkeys([*settings().queues, *found.names]))
    if not names:
        return f"There is no queue {which.queue}, and no other one yet."
    near = nearest(which.queue, names)
    hint = "" if near is None else f"Did you mean {near}? "
    more = ", …" if max(found.total, len(names)) > _LISTED else ""
    listed = ", ".join(names[:_LISTED])
    return f"There is no queue {which.queue}. {hint}The queues are {listed}{more}."
