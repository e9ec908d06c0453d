"""The findings about the outbox."""

from django.db import Error, connections
from django.db.models import Count, Min
from django.utils.http import urlencode

from django_ojs.extensions.outbox import operations, storage
from django_ojs.extensions.outbox.models import Delivery, OutboxEntry
from django_ojs.finding import AdminPage, Finding
from django_ojs.formatting import grouped
from django_ojs.storage import database, raw_queries

#: The most rejected jobs that are counted.
_MOST = 10_000


def condition() -> str:
    """Return the SQL condition that there is something to find."""
    if not operations.is_only_here():
        return ""
    return raw_queries.condition(OutboxEntry, f"state = '{Delivery.REJECTED.value}'")


def found() -> list[Finding]:
    """Find the jobs that the outbox of each alias could not deliver."""
    return [each for alias in operations.aliases() for each in _of(alias)]


def _of(alias: str) -> list[Finding]:
    is_here = alias == database.alias()
    rows = storage.entries(alias)
    rejected = rows.filter(state=Delivery.REJECTED).order_by("created_at").values("created_at")
    try:
        figures = rejected[: _MOST + 1].aggregate(number=Count("*"), since=Min("created_at"))
    except Error:
        if is_here:
            raise
        connections[alias].close()  # Only the jobs' own database must respond.
        return []
    if not figures["number"]:
        return []
    number = min(figures["number"], _MOST)
    some = f"at least {grouped(number)}" if figures["number"] > _MOST else grouped(number)
    query = {"state": Delivery.REJECTED.value}
    where = ""
    if not is_here:
        query["outbox_of"] = alias
        where = f" It is the outbox of the database {alias}."
    return [
        Finding(
            kind="outbox_rejected",
            subject="" if is_here else alias,
            text=f"Rejected jobs of the outbox: {some}.{where}",
            why="They are not sent again by themselves, and are deleted after KEEP_DEAD_LETTERS.",
            cure="The outbox in the admin has their errors; once the cause is removed, requeue "
            "them there, or delete them.",
            since=figures["since"],
            jobs=number,
            pages=(AdminPage(model=OutboxEntry, query=f"?{urlencode(query)}"),),
        )
    ]
