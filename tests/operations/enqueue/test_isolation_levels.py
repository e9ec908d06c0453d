"""An enqueue in a caller's transaction leaves its isolation level as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.db import connection, transaction

import django_ojs as ojs
from django_ojs.models import Job
from django_ojs.storage import queue_configs

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]

REPEATABLE_READ, SERIALIZABLE = 3, 4

ENQUEUES: dict[str, Callable[[], object]] = {
    "single": lambda: ojs.enqueue("level.test", [1]),
    "batch": lambda: ojs.enqueue_batch([ojs.request("level.test", [n]) for n in range(3)]),
    "unique": lambda: ojs.enqueue("level.test", [1], unique={"keys": ["type"]}),
    "chain": lambda: ojs.chain(*[ojs.request("level.test", [n]) for n in range(2)]).enqueue(),
}


@pytest.fixture(params=[REPEATABLE_READ, SERIALIZABLE])
def level(request: pytest.FixtureRequest) -> Iterator[int]:
    """Connect with another isolation level, as the `OPTIONS` of a project may ask for."""
    options = connection.settings_dict["OPTIONS"]
    kept = dict(options)
    connection.close()
    options["isolation_level"] = request.param
    try:
        yield request.param
    finally:
        connection.close()
        options.clear()
        options.update(kept)


def isolation() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW transaction_isolation")
        return str(cursor.fetchone()[0])


@pytest.mark.parametrize("reads_first", [True, False], ids=["read first", "enqueue first"])
@pytest.mark.parametrize("kind", ENQUEUES)
def test_the_callers_transaction_keeps_its_level(level: int, kind: str, reads_first: bool) -> None:
    # The configurations of the queues are read in the transaction.
    queue_configs._snapshots.reset()
    with transaction.atomic():
        if reads_first:
            assert not Job.objects.exists()
        ENQUEUES[kind]()
        assert isolation() == ("serializable" if level == SERIALIZABLE else "repeatable read")
    assert Job.objects.exists()
