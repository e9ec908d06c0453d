"""What a queue's claims check, when another process has changed it since this one read it."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ojs.operations import ack, fetch, queues
from django_ojs.spec.errors import OJSError
from django_ojs.storage import queue_configs
from django_ojs.storage.claimed_job import Claimed
from tests.cases import together
from tests.factories import WORKER, jobs, push, push_many

pytestmark = pytest.mark.django_db

QUEUE = "carrier"
KEYED = {"rate_limit": {"key": "acme", "concurrency": 1}}


@contextmanager
def in_another_process() -> Iterator[None]:
    """Let this process know of the block's changes no more than before, and not read for long."""
    queue_configs.current()
    known = queue_configs._snapshots.kept
    assert known is not None
    yield
    queue_configs.remember(known.stored, known.warned, known.rules, known.draining, seconds=600)


def claim(count: int = 100) -> list[Claimed]:
    return fetch.fetch([QUEUE], count=count, worker_id=WORKER, due=False)


def change(**config: Any) -> Callable[[], object]:
    return lambda: queues.configure(QUEUE, config)


def of_all(**config: Any) -> Callable[[], object]:
    return lambda: queues.configure_default(config)


@together(
    "first, number",
    [
        (lambda: push(queue=QUEUE, **KEYED), 4),
        (change(concurrency=2), 2),
        (change(rate_limit={"limit": 1, "period": "PT1H"}), 1),
        (of_all(concurrency=2), 2),
        (change(tenant_fairness={"enabled": True}), 3),
        # Without effect, though the statement of a plain claim sees the name.
        (change(tenant_fairness={"enabled": False}), 3),
        (change(concurrency=0), 3),
    ],
    undo=True,
)
def test_the_first_fetch_after_a_queue_got_a_limit_returns_what_may_start(
    first: Callable[[], object], number: int
) -> None:
    push_many(3, queue=QUEUE)
    with in_another_process():
        first()
    assert len(claim()) == number


def test_a_queue_with_a_limit_of_its_own_gets_jobs_with_a_limit_by_key() -> None:
    queues.configure(QUEUE, {"concurrency": 5})
    with in_another_process():
        push(queue=QUEUE, **KEYED)
        push(queue=QUEUE, **KEYED)
    assert len(claim()) == 1


def test_a_queue_with_a_limit_of_its_own_gets_turns_of_its_tenants() -> None:
    queues.configure(QUEUE, {"concurrency": 5})
    for tenant in "aabb":
        push(queue=QUEUE, meta={"tenant_id": tenant})
    with in_another_process():
        queues.configure(QUEUE, {"tenant_fairness": {"enabled": True}})
    assert {job.meta["tenant_id"] for job in claim(2)} == {"a", "b"}


@pytest.mark.parametrize(
    "known", [lambda: push(queue=QUEUE, **KEYED), change(tenant_fairness={"enabled": True})]
)
@together("limit", [{"concurrency": 1}, {"rate_limit": {"limit": 1, "period": "PT1H"}}], undo=True)
@pytest.mark.parametrize("give", [change, of_all])
def test_a_queue_whose_claims_check_something_else_gets_a_limit_of_its_own(
    known: Callable[[], object], limit: Any, give: Any
) -> None:
    known()
    push_many(3, queue=QUEUE)
    with in_another_process():
        give(**limit)()
    assert len(claim()) == 1
    assert claim() == []


@together("new, number", [({"concurrency": 3}, 2), ({"concurrency": 0}, 4)], undo=True)
def test_a_full_queue_starts_more_jobs_as_soon_as_its_limit_is_raised(
    new: Any, number: int
) -> None:
    queues.configure(QUEUE, {"concurrency": 1})
    push_many(5, queue=QUEUE)
    assert len(claim()) == 1
    assert claim() == []
    with in_another_process():
        queues.configure(QUEUE, new)
    assert len(claim()) == number


def test_a_queue_whose_last_limit_was_removed_is_claimed() -> None:
    push(queue=QUEUE, **KEYED)
    (running,) = claim()
    with in_another_process():
        ack.ack(running.id)
        queues.configure(QUEUE, {"concurrency": 1})
        queues.configure(QUEUE, {"concurrency": None})
        push_many(2, queue=QUEUE)
    assert len(claim()) == 2
    assert jobs().filter(state="active").count() == 2


@together(
    "forbid",
    [
        lambda: queues.drain(QUEUE),
        change(allowed_job_types=["other.*"]),
        change(max_envelope_bytes=10),
        of_all(allowed_job_types=["other.*"]),
    ],
    undo=True,
)
def test_what_another_process_forbids_is_rejected_within_a_second(
    forbid: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The suite has another one.
    (lifetime,) = re.findall("LIFETIME: Final = (.+)", inspect.getsource(queue_configs))
    monkeypatch.setattr(queue_configs, "LIFETIME", float(lifetime))
    queue_configs.refresh()
    known = queue_configs._snapshots.kept
    assert known is not None
    forbid()
    queue_configs._snapshots.kept = replace(known, view=queue_configs._snapshots.view())
    assert push(queue=QUEUE).state == "available"
    with monkeypatch.context() as patch:
        a_second_later = time.monotonic() + 1
        patch.setattr(time, "monotonic", lambda: a_second_later)
        with pytest.raises(OJSError):
            push(queue=QUEUE)


@pytest.mark.statements
def test_a_fetch_that_finds_nothing_asks_the_server_once() -> None:
    with in_another_process():
        push(queue="other", **KEYED)
    with CaptureQueriesContext(connection) as captured:
        assert claim() == []
    # To SQLite the way is not long.
    assert len(captured) == (1 if connection.vendor == "postgresql" else 2)
