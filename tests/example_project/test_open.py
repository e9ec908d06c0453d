"""The parts of the open server that need no server."""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.test import RequestFactory, override_settings

from django_ojs.models import Job, Lease, Queue, Worker
from django_ojs.operations.maintenance import lease
from django_ojs.storage.figures import counts
from example_project.open.middleware import loopback_only
from example_project.open.reset import reset
from tests.factories import WorkerFactory, push


@pytest.mark.parametrize(
    ("address", "status"),
    [("127.0.0.1", 200), ("::1", 200), ("192.0.2.1", 403), ("", 403), ("unix", 403)],
)
@override_settings(DEBUG=True)
def test_only_this_machine_gets_a_response(address: str, status: int) -> None:
    request = RequestFactory().get("/", REMOTE_ADDR=address)
    assert loopback_only(lambda request: HttpResponse())(request).status_code == status


def test_without_debug_nobody_is() -> None:
    with pytest.raises(ImproperlyConfigured, match="needs DEBUG"):
        loopback_only(lambda request: HttpResponse())


@pytest.mark.django_db(transaction=True)
def test_a_reset_leaves_no_row_and_no_count_but_the_lease() -> None:
    for _ in range(3):
        push(queue="full")
    Queue.objects.update_or_create(name="full")
    WorkerFactory()
    assert lease.take("me")

    reset()

    assert not Job.objects.exists()
    assert not Queue.objects.exists()
    assert not Worker.objects.exists()
    assert counts.depth("full") == 0
    assert Lease.objects.filter(holder="me").exists()
    push(queue="full")
    assert counts.depth("full") == 1
