"""A key that is limited to a queue: what it reads does not depend on other queues.

Each read route is asked twice with the same key, before and after other queues get jobs, workers,
events and figures. Both responses must be equal: names, types and numbers included.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.urls import reverse

from django_ojs.extension import Actor
from django_ojs.extensions.checkpoints import operations as checkpoint
from django_ojs.extensions.events import storage as stored
from django_ojs.extensions.statistics import all_time, rollups
from django_ojs.extensions.steps import remote
from django_ojs.extensions.webhooks import spec as webhooks
from django_ojs.extensions.webhooks.models import WebhookDelivery
from django_ojs.extensions.webhooks.operations import dispatch
from django_ojs.models import ActorKind
from django_ojs.operations import queues
from django_ojs.operations.access.operator import acting
from django_ojs.operations.ack import ack
from django_ojs.storage.transitions import Claim
from tests.factories import WorkerFactory, hourly, in_state, push
from tests.figures import note
from tests.http.api import Api, make_key
from tests.http.test_principals import patterns, served
from tests.model_factories import SubscriptionFactory
from tests.operations.cron import scenes as cron_jobs
from tests.operations.workflows import scenes as workflows

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]

WORD = "classified"
#: Values that change with time alone, and the position of the last event that was read.
VOLATILE = {"uptime_seconds", "computed_at", "cursor", "backend", "last_heartbeat_at"} | {
    "query_time_ms"
}

#: What a limited key gets of these is tested in tests/http/test_event_stream.py.
STREAMS = {
    *("ojs-event-stream", "ojs-job-events", "ojs-queue-events"),
    "ojs-job-progress-stream",
}
#: Jobs of all queues share a limit key: a limited key may not read any (tests/http/principals.py).
OF_ALL_QUEUES = {"ojs-rate-limits", "ojs-rate-limit"}
READ_ROUTES = sorted(
    {name for method, name in served() if method == "GET"} - STREAMS - OF_ALL_QUEUES
)


@pytest.fixture(autouse=True)
def _closed(settings: Any) -> None:
    settings.OJS = {
        "HTTP_AUTHENTICATION": ["django_ojs.http.authentication.ApiKeyAuthentication"],
        "KEEP_EVENTS": ["*"],
    }
    all_time.sums.reset()


def fill(queue: str, type: str) -> dict[str, str]:
    """Make something of each kind in a queue; return the ids of a job and of a dead letter."""
    queues.configure(queue, {"backpressure": {"max_depth": 100}})
    for state in ("retryable", "scheduled", "cancelled"):
        in_state(state, queue=queue, type=type, args=[type])
    dead = in_state("discarded", queue=queue, type=type, retry=hourly(1))
    ack(in_state("active", queue=queue, type=type).pk)
    job = in_state("active", worker_id="shared", queue=queue, type=type)
    push(queue=queue, type=type)
    note(rollups.REJECTED, queue, type)
    cron_jobs.register(queue, template={"type": type, "options": {"queue": queue}})
    checkpoint.save(job.pk, {"type": type})
    remote.store_step(
        job.pk, Claim(run=1), remote.ClientStep(number=0, name=type), result=type, error=None
    )
    workflow = workflows.create(workflows.chain(workflows.job(type, queue=queue), name=type))
    webhook, _ = SubscriptionFactory(url=f"https://{queue}.example", queues=[queue])
    with acting(Actor(kind=ActorKind.USER, name=f"of {type}")):
        queues.pause(queue)
    queues.resume(queue)
    rollups.flush()
    stored.assign_positions()
    dispatch.dispatch()
    delivery = WebhookDelivery.primary.filter(webhook=webhook).latest("pk")
    return {
        "job": str(job.pk),
        "dead": str(dead.pk),
        "workflow": str(workflow.pk),
        "webhook": f"{webhooks.SUBSCRIPTION_PREFIX}{webhook.pk}",
        "delivery": f"{webhooks.DELIVERY_PREFIX}{delivery.pk}",
    }


def scrubbed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: scrubbed(each) for name, each in value.items() if name not in VOLATILE}
    return [scrubbed(each) for each in value] if isinstance(value, list) else value


def read_all(api: Api, mine: dict[str, str]) -> dict[str, Any]:
    """Return the response of each read route that the URLconf has, by its name."""
    day = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    span = {"since": day - timedelta(days=2), "until": day + timedelta(days=2)}
    times = {name: each.isoformat() for name, each in span.items()}
    query = {"ojs-admin-history": {"period": "1d", **times}, "ojs-job-steps": {"run": 1}}
    found = {}
    for name in READ_ROUTES:
        pattern = next(each for each in patterns() if each.name == name)
        known = {**mine, "worker": "shared"}
        kind = next(
            (
                each
                for each in ("dead", "delivery", "webhook", "workflow", "worker")
                if each in name
            ),
            "job",
        )
        kinds = {"name": "mine", "key": known[kind]}
        path = reverse(name, kwargs={each: kinds[each] for each in pattern.pattern.converters})
        response = api.get(f"{path}?{urlencode(query.get(name, {}))}")
        assert response.status == 200, (name, response.body)
        found[name] = scrubbed(response.body) or response.raw.content.decode()
    return found


def test_what_it_reads_is_the_same_whatever_is_in_other_queues() -> None:
    api = Api(make_key("admin", queues=("mine",)))
    mine = fill("mine", "mine.job")
    WorkerFactory(id="shared", hostname="h", queues=("mine",), active_jobs=0)
    before = read_all(api, mine)
    theirs = fill("other", f"{WORD}.job")
    in_state("active", queue=f"{WORD}-2", type=f"{WORD}.job")
    WorkerFactory(id=f"w-{WORD}", hostname=WORD, queues=("other",))
    WorkerFactory(id="shared", hostname="h", queues=("mine", "other"), active_jobs=7)
    stored.assign_positions()
    after = read_all(api, mine)
    for name in READ_ROUTES:
        assert after[name] == before[name], name
        assert WORD not in str(after[name]), name
        assert theirs["job"] not in str(after[name]), name


def test_the_id_of_an_event_of_another_queue_is_no_cursor() -> None:
    push(queue="other")
    (event,) = (each for each in Api(make_key("read")).get("events").ok()["events"])
    limited = Api(make_key("read", queues=("mine",)))
    limited.get(f"events?after={event['id']}").error(400, "invalid_request", field="after")
