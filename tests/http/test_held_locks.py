"""What others have locked holds up no thread of the HTTP plane: a request passes by or is rejected.

A server has few threads, and a stranger's transaction is open for as long as the stranger likes. In
each test it stays open until the response is there.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import TimeoutError as TooLateError
from contextlib import AbstractContextManager
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from django_ojs.extensions.backpressure import storage as bounds
from django_ojs.models.base import stored_models
from django_ojs.operations import queues
from django_ojs.spec.unique_policy import UniquePolicy
from tests.cases import case
from tests.factories import WorkerFactory, in_state, jobs, push
from tests.http.api import Api, ApiResponse, make_key
from tests.http.principals import TABLE
from tests.http.test_principals import ask
from tests.model_factories import SubscriptionFactory
from tests.operations.cron import scenes as cron
from tests.operations.workflows import scenes as workflows
from tests.other_session import Other, open_transaction
from tests.worker.waiting import BOUND

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgresql,  # On SQLite no transaction stays open beside one that writes.
]

UNIQUE = {"keys": ["args"]}
ID = "01a1fc00-0000-7000-8000-00000000000a"


def answer(request: Callable[[], ApiResponse]) -> ApiResponse:
    """Return the response to a request of another thread, which comes while the lock is held."""
    with Other() as other:
        response = other.do(request)
        try:
            found: ApiResponse = response.result(BOUND)
        except TooLateError:
            pytest.fail("The request waits for the transaction of somebody else.")
    return found


def rejected(response: ApiResponse, status: int = 503) -> None:
    assert response.status == status, response.body
    assert int(response.headers["Retry-After"]) >= 1


def is_no_failure(response: ApiResponse) -> bool:
    """Whether it succeeded, found or did nothing, or says when to try again."""
    return response.status < 500 or int(response.headers["Retry-After"]) >= 1


def all_rows_locked() -> AbstractContextManager[Callable[[], None]]:
    """Let another session lock each row that there is, of every table."""

    def lock() -> None:
        with connection.cursor() as cursor:
            for model in stored_models():
                cursor.execute(f"SELECT 1 FROM {model._meta.db_table} FOR UPDATE")

    return open_transaction(lock)


def test_a_push_with_a_unique_key_that_is_being_stored() -> None:
    job: dict[str, Any] = {"type": "test.job", "args": [1], "options": {"unique": UNIQUE}}
    with open_transaction(lambda: push(args=[1], unique=UniquePolicy(keys=["args"]))):
        rejected(answer(lambda: Api().post("jobs", job)))
        rejected(answer(lambda: Api().post("jobs/batch", {"jobs": [job, job]})))
        answer(lambda: Api().post("jobs", job | {"args": [2]})).ok(201)


def test_a_push_with_an_id_that_is_being_stored() -> None:
    job = {"type": "test.job", "args": [], "id": ID}
    with open_transaction(lambda: push(id=UUID(ID))):
        rejected(answer(lambda: Api().post("jobs", job)))
        rejected(answer(lambda: Api().post("jobs/batch", {"jobs": [job]})))
    assert not jobs().filter(pk=ID).exists()
    Api().post("jobs", job).ok(201)


def test_a_push_to_a_queue_that_is_nearly_full(monkeypatch: pytest.MonkeyPatch) -> None:
    # What waits as long as a producer in Python does fails the test.
    monkeypatch.setattr(bounds, "LOCK_TIMEOUT", 4 * BOUND)
    queues.configure("full", {"backpressure": {"max_depth": 2}})
    job = {"type": "test.job", "args": [], "options": {"queue": "full"}}
    with open_transaction(lambda: push(queue="full")):
        rejected(answer(lambda: Api().post("jobs", job)), 429)
        rejected(answer(lambda: Api().post("jobs/batch", {"jobs": [job]})), 429)
        chain = {"type": "chain", "steps": [job]}
        rejected(answer(lambda: Api().post("workflows", chain)), 429)


def test_a_request_that_the_site_wraps_in_a_transaction() -> None:
    held = in_state("active")

    def request() -> ApiResponse:
        with transaction.atomic():  # As ATOMIC_REQUESTS does.
            response = Api().post("workers/ack", {"job_id": str(held.pk)})
            transaction.set_rollback(True)
        return response

    with all_rows_locked():
        rejected(answer(request))


def test_no_request_waits_for_a_row() -> None:
    held = str(in_state("active", queue="other", worker_id="w-classified").pk)
    WorkerFactory(id="w-classified")
    template = {"type": "test.job", "args": [], "options": {"queue": "other"}}
    cron.register("other", template=template)
    workflow = workflows.create(workflows.chain(template))
    webhook, _ = SubscriptionFactory()
    queues.configure("other", {"rate_limit": {"concurrency": 5}})
    queues.pause("other")
    api = Api(make_key("admin"))
    beat = {"worker_id": "w-classified", "active_jobs": [held]}
    more = [
        ("DELETE", f"workflows/{workflow.pk}", None),
        ("PATCH", f"webhooks/subscriptions/{webhook.pk}", {"active": False}),
        ("POST", f"webhooks/subscriptions/{webhook.pk}/rotate-secret", None),
        ("DELETE", f"webhooks/subscriptions/{webhook.pk}", None),
        ("POST", "workers/heartbeat", beat),
        ("POST", "workers/fetch", {"queues": ["other"], "worker_id": "w-classified"}),
    ]
    with all_rows_locked():
        for line in TABLE:
            with case(f"{line.method} {line.route}"):
                assert is_no_failure(answer(lambda line=line: ask(api, line, held)))
        for method, path, body in more:
            with case(f"{method} {path}"):
                assert is_no_failure(answer(lambda each=(method, path, body): api.ask(*each)))
