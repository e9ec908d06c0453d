"""What a queue takes less of than the server: the size of an envelope, on every way in."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

import django_ojs as ojs
from django_ojs.operations import push as pushing
from django_ojs.operations import queues
from django_ojs.operations.jobs import dead_letters
from django_ojs.spec import json as strict
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.errors import PayloadTooLarge
from django_ojs.storage import queue_configs
from tests import factories
from tests.factories import EnvelopeFactory, jobs
from tests.http.api import Api

pytestmark = pytest.mark.django_db

api = Api()
LIMIT = 2_000


@pytest.fixture
def small() -> str:
    queues.configure("small", {"max_envelope_bytes": LIMIT})
    return "small"


def document(size: int, **values: Any) -> dict[str, Any]:
    """Build a job whose compact document has that many bytes."""
    made = {"type": "test.job", "queue": "small", "args": [""]} | values
    rest = size - len(strict.dumps(made).encode())
    made["args"] = ["ä" * (rest // 2) + "x" * (rest % 2)]
    assert len(strict.dumps(made).encode()) == size
    return made


def python(job: dict[str, Any]) -> None:
    ojs.enqueue(job["type"], job["args"], queue=job["queue"])


def python_batch(job: dict[str, Any]) -> None:
    ojs.enqueue_batch([ojs.request(job["type"], job["args"], queue=job["queue"])])


@pytest.mark.requirement("PL-014")
@pytest.mark.parametrize("way", [python, python_batch])
def test_python_may_send_the_limit_and_not_a_byte_more(
    small: str, way: Callable[[dict[str, Any]], None]
) -> None:
    way(document(LIMIT))
    with pytest.raises(PayloadTooLarge) as caught:
        way(document(LIMIT + 1))
    assert (
        caught.value.details.items()
        >= {"field": "envelope", "actual_bytes": LIMIT + 1, "max_bytes": LIMIT}.items()
    )
    assert jobs().count() == 1


@pytest.mark.requirement("PL-014")
@pytest.mark.parametrize("more", [{}, {"options": {"priority": 5}, "meta": {"a": "ä"}}])
def test_http_measures_the_document_that_was_sent(small: str, more: dict[str, Any]) -> None:
    # With spaces, which do not count.
    api.post("jobs", json.dumps(document(LIMIT, **more), indent=3).encode()).ok(201)
    response = api.post("jobs", document(LIMIT + 1, **more))
    response.error(413, "PAYLOAD_TOO_LARGE", actual_bytes=LIMIT + 1, max_bytes=LIMIT)


def test_one_job_over_the_limit_rejects_the_batch(small: str) -> None:
    jobs_of_batch = [document(LIMIT), document(LIMIT + 1), document(LIMIT)]
    response = api.post("jobs/batch", {"jobs": jobs_of_batch})
    response.error(413, "PAYLOAD_TOO_LARGE", index=1, field="envelope")
    assert jobs().count() == 0


def test_the_default_policy_holds_for_queues_that_say_nothing(small: str) -> None:
    queues.configure_default({"max_envelope_bytes": 1_000})
    python(document(LIMIT))
    with pytest.raises(PayloadTooLarge):
        python(document(1_001, queue="another"))


def test_other_queues_keep_the_servers_limit(small: str) -> None:
    python(document(100_000, queue="large"))
    api.post("jobs", document(100_000, queue="large")).ok(201)


def test_a_queue_that_a_middleware_chooses_has_its_limit(small: str, settings: Any) -> None:
    settings.OJS = settings.OJS | {"ENQUEUE_MIDDLEWARE": [f"{__name__}.to_small"]}
    with pytest.raises(PayloadTooLarge):
        python(document(LIMIT + 1, queue="large"))
    with pytest.raises(PayloadTooLarge):
        pushing.push(EnvelopeFactory(args=["x" * LIMIT]))


def to_small(envelope: Envelope, proceed: Callable[[Envelope], Any]) -> Any:
    """Send every job to the small queue."""
    envelope.queue = "small"
    return proceed(envelope)


def test_a_limit_that_is_lifted_or_lowered_holds_at_once(small: str) -> None:
    queues.configure("small", {"max_envelope_bytes": None})
    python(document(LIMIT + 1))
    queues.configure("small", {"max_envelope_bytes": 500})
    with pytest.raises(PayloadTooLarge):
        python(document(501))


def test_a_deleted_queue_has_no_limit(small: str) -> None:
    queues.delete("small")
    python(document(LIMIT + 1))


def test_queues_are_read_at_most_once_a_second(small: str) -> None:
    with CaptureQueriesContext(connection) as queries:
        for _ in range(20):
            queue_configs.of("small")
            queue_configs.of("another")
    assert len([q for q in queries if "ojs_queue" in q["sql"]]) == 1


def test_what_another_process_has_changed_is_seen_when_the_memory_is_too_old() -> None:
    queue_configs.remember({"small": {"max_envelope_bytes": 500}}, seconds=60)
    with pytest.raises(PayloadTooLarge):
        python(document(501))
    queue_configs.remember({"small": {"max_envelope_bytes": 500}}, seconds=-1)
    python(document(501))


@pytest.mark.django_db(transaction=True)
def test_what_a_transaction_configures_is_forgotten_once_it_has_committed() -> None:
    with transaction.atomic():
        queues.configure("small", {"max_envelope_bytes": LIMIT})
        # Another thread reads meanwhile, and does not see it.
        queue_configs.remember({}, seconds=60)
    with pytest.raises(PayloadTooLarge):
        python(document(LIMIT + 1))


@pytest.mark.requirement("PL-014")
def test_a_dead_letter_that_is_retried_with_other_arguments_keeps_to_the_limit(small: str) -> None:
    dead = factories.in_state("discarded", queue="small")
    with pytest.raises(PayloadTooLarge):
        dead_letters.retry(dead.pk, override={"args": ["ä" * LIMIT]})
    large = factories.in_state("discarded", queue="large", args=["ä" * LIMIT])
    with pytest.raises(PayloadTooLarge):
        dead_letters.retry(large.pk, override={"queue": "small"})
    # What is there already, and stays as it is, may run again.
    queues.configure("large", {"max_envelope_bytes": 100})
    again = dead_letters.retry(large.pk, override={"priority": 3})
    assert (again.state, again.priority) == ("available", 3)
