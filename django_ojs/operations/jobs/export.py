"""The whole rows of all jobs of a filter, in constant memory and without a long transaction.

A server-side cursor would hold a snapshot for as long as the export takes, which keeps VACUUM from
removing dead rows, and does not work through a pooler in transaction mode. So it reads page after
page in the order of the ids.
"""

from collections.abc import Iterable, Iterator
from typing import Final
from uuid import UUID

from django_ojs.models import Job
from django_ojs.operations import keyset
from django_ojs.operations.jobs.job_filter import JobFilter

#: The most ids of one query.
PAGE: Final = 1_000
#: The most rows of one query, and their bytes without results. A single row may be larger.
ROWS: Final = 200
BYTES: Final = 4 * 1024 * 1024


def stream(which: JobFilter) -> Iterator[Job]:
    """Yield the jobs in the order of their ids, each as it is when its page is read."""
    sizes = which.jobs().values_list("pk", "size_bytes", named=True)
    found = keyset.all_rows(lambda wanted: keyset.page(sizes, {"pk": UUID}, wanted), PAGE)
    for keys in _parts(found):
        # A job that has changed since then, and no longer matches, is left out.
        yield from which.narrow(Job.primary.filter(pk__in=keys)).order_by("pk")


def _parts(found: Iterable[tuple[UUID, int | None]]) -> Iterator[list[UUID]]:
    part: list[UUID] = []
    total = 0
    for key, size in found:
        if part and (len(part) == ROWS or total + (size or 0) > BYTES):
            yield part
            part, total = [], 0
        part.append(key)
        total += size or 0
    if part:
        yield part
