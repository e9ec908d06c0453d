"""An enqueue in a caller's transaction takes the write lock of SQLite before it reads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from django.db import connection, transaction

from django_ojs.models import Job
from django_ojs.storage import queue_configs
from tests.factories import own_connections
from tests.operations.enqueue.test_isolation_levels import ENQUEUES
from tests.testapp.models import Thing
from tests.worker.waiting import BOUND

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sqlite]


@pytest.fixture(autouse=True)
def deferred() -> Iterator[None]:
    """Begin transactions as a project without `transaction_mode` does: the first write locks."""
    options = connection.settings_dict["OPTIONS"]
    kept = dict(options)
    connection.close()
    options["transaction_mode"] = "DEFERRED"
    try:
        yield
    finally:
        connection.close()
        options.clear()
        options.update(kept)


@pytest.mark.parametrize("kind", ENQUEUES)
def test_it_waits_for_what_another_connection_writes(kind: str) -> None:
    # The configurations of the queues are read in the transaction. One that has read does not get
    # the lock afterwards, if another connection has written in between: it fails at once.
    queue_configs._snapshots.reset()
    has_written, enqueues = Event(), Event()

    def write() -> None:
        with own_connections(), transaction.atomic():
            Thing.objects.create(name="meanwhile")
            has_written.set()
            enqueues.wait(BOUND)
            # The enqueue begins in this time, and goes on after the commit.
            time.sleep(0.3)

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(write)
        assert has_written.wait(BOUND)
        with transaction.atomic():
            enqueues.set()
            ENQUEUES[kind]()
        other.result(BOUND)
    assert Job.objects.exists()
