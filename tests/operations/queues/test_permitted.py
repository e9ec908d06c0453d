"""Which jobs and which producers a queue accepts (ojs-queue-config §6.5)."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import override_settings

from django_ojs.operations import queues
from django_ojs.operations.access import api_keys
from django_ojs.operations.push import push_batch
from django_ojs.spec.errors import JobTypeNotAllowed
from tests.factories import EnvelopeFactory, jobs, push
from tests.http.api import Api
from tests.model_factories import ApiKeyFactory

pytestmark = pytest.mark.django_db


keys_only = override_settings(
    OJS={"HTTP_AUTHENTICATION": ["django_ojs.http.authentication.ApiKeyAuthentication"]}
)


def api_of(name: str) -> Api:
    return Api(ApiKeyFactory(name=name, scopes=("producer",))[1])


@pytest.mark.parametrize("job_type", ["payment.refund", "payment.card.charge", "report"])
def test_a_type_that_a_pattern_matches_is_accepted(job_type: str) -> None:
    queues.configure("payments", {"allowed_job_types": ["payment.*", "report"]})
    assert push(queue="payments", type=job_type).type == job_type


@pytest.mark.requirement("QC-10")
@pytest.mark.parametrize("job_type", ["payment", "reports", "email.payment.refund"])
def test_another_type_is_rejected_in_python_and_over_http(job_type: str) -> None:
    queues.configure("payments", {"allowed_job_types": ["payment.*", "report"]})
    with pytest.raises(JobTypeNotAllowed) as caught:
        push_batch(
            [EnvelopeFactory(type="report"), EnvelopeFactory(queue="payments", type=job_type)]
        )
    assert caught.value.details == {"field": "type", "index": 1}
    body = {"type": job_type, "args": [], "queue": "payments"}
    api_of("web").post("jobs", body).error(422, "JOB_TYPE_NOT_ALLOWED", field="type")
    assert not jobs().exists()
    assert push(type=job_type).type == job_type


@pytest.mark.parametrize("names", [["*"], ["a", "*"], None])
def test_an_asterisk_or_nothing_permits_all(names: Any) -> None:
    queues.configure_default({"allowed_job_types": ["none"]})
    queues.configure("open", {"allowed_job_types": ["report"]})
    queues.configure_default({"allowed_job_types": None})
    queues.configure("open", {"allowed_job_types": names, "producers": names})
    assert push(queue="open", type="any.type")
    api_of("web").post("jobs", {"type": "any.type", "args": [], "queue": "open"}).ok(201)


def test_the_default_policy_holds_for_a_queue_without_a_list_of_its_own() -> None:
    queues.configure_default({"allowed_job_types": ["report"]})
    queues.configure("open", {"allowed_job_types": ["*"]})
    assert push(queue="open", type="any.type")
    with pytest.raises(JobTypeNotAllowed):
        push(queue="other", type="any.type")


@pytest.mark.requirement("QC-11")
@keys_only
def test_only_the_listed_producers_enqueue_over_http() -> None:
    queues.configure("payments", {"producers": ["shop", "till-*"]})
    body = {"type": "pay", "args": [], "queue": "payments"}
    for name in ("shop", "till-7"):
        api_of(name).post("jobs", body).ok(201)
    for name in ("shop2", "web"):
        api_of(name).post("jobs", body).error(403, "PERMISSION_DENIED", field="queue")
        api_of(name).post("jobs/batch", {"jobs": [body]}).error(403, "PERMISSION_DENIED")
    assert jobs().count() == 2
    # The site's own code is no producer with credentials.
    assert push(queue="payments")


@keys_only
def test_a_producer_may_be_listed_by_the_prefix_that_a_rotation_keeps() -> None:
    key, text = ApiKeyFactory(scopes=["producer"])
    queues.configure("payments", {"producers": [key.principal]})
    rotated = api_keys.replace(key.prefix)[1]
    for secret in (text, rotated):
        Api(secret).post("jobs", {"type": "pay", "args": [], "queue": "payments"}).ok(201)
