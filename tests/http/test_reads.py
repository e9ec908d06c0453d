"""A GET changes nothing: each is answered where the database rejects whatever writes.

What is written after the request is not its answer, and is not asked about: when an API key was
last used, and the figures of the process.
"""

from __future__ import annotations

from uuid import UUID

import pytest

from django_ojs.extensions.checkpoints.models import MARK, Checkpoint
from django_ojs.extensions.limits import limit_keys
from django_ojs.extensions.webhooks.models import Webhook
from django_ojs.operations import queues
from tests.cases import case
from tests.factories import active, in_state, jobs, push
from tests.http.api import Api
from tests.http.principals import TABLE
from tests.http.test_principals import ask, other  # noqa: F401  # a fixture
from tests.model_factories import SubscriptionFactory, WebhookDeliveryFactory
from tests.reading import read_only

pytestmark = pytest.mark.django_db

STREAMS = {"ojs-event-stream", "ojs-job-events", "ojs-queue-events", "ojs-job-progress-stream"}


def make_queues() -> None:
    """Make a queue without a row, and deleted ones with jobs of each kind."""
    push(queue="other")
    names = ("again", "running", "ended")
    for name in names:
        in_state("completed", queue=name)
    active(queue="running")
    for name in names:
        queues.delete(name, strategy="discard")
    push(queue="again")
    # Nobody has looked since its last job was deleted.
    jobs().filter(queue="ended").delete()


def make_things(key: str) -> None:
    """Make what a path may name, each with this key."""
    id = UUID(key)
    kept, _ = SubscriptionFactory()
    Webhook.primary.filter(pk=kept.pk).update(id=id)
    WebhookDeliveryFactory(webhook_id=id, id=id, event_id=id)
    limit_keys.override(key, {"concurrency": 3})
    Checkpoint(
        job_id=id, run=1, sequence=1, state="1", created_at=jobs().get(pk=id).created_at
    ).save()
    jobs().filter(pk=id).update(marks=MARK)


@pytest.mark.both
def test_no_get_writes(other: str) -> None:  # noqa: F811  # the fixture
    make_queues()
    make_things(other)
    api = Api()
    for line in TABLE:
        # Whether the database takes writes is what readiness is about.
        if line.method == "GET" and line.route != "ojs-ready":
            # It keeps since when something has been wrong.
            keeps = line.route == "ojs-health-findings"
            with case(line.route), read_only(keeps_incidents=keeps) as rejected:
                response = ask(api, line, other)
                assert rejected == []
                # Streams are for an asynchronous server, and the job runs no more.
                others = {**dict.fromkeys(STREAMS, 422), "ojs-job-steps": 409}
                assert response.status == others.get(line.route, 200), response.body
