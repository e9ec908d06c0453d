"""Lists over HTTP: whichever way a client pages, it sees each item once and comes to an end."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from django_ojs.extension import publish
from django_ojs.models import WebhookDelivery
from django_ojs.models.event import Event
from django_ojs.operations import cron, workflows
from django_ojs.operations.cron import Definition
from django_ojs.operations.webhooks import subscriptions
from django_ojs.operations.webhooks.subscriptions import Subscription
from django_ojs.spec import ids
from django_ojs.spec.published import EventType, of_queue
from tests.cases import named
from tests.factories import age, in_state, worker
from tests.http.api import JSON_TYPE, Api
from tests.http.operations import Operation, operations, resolve
from tests.operations.workflows.scenes import chain, group, job

pytestmark = pytest.mark.django_db

api = Api()

#: Items of most lists: three pages of two, the last of which has one.
ITEMS = 5


def _workflows() -> None:
    for _ in range(ITEMS):
        api.post("workflows", chain(job("a"))).ok(201)


def _cron_jobs() -> None:
    for number in range(ITEMS):
        template = {"type": "a.b", "args": []}
        cron.register(Definition(name=f"cron-{number}", expression="@daily", template=template))


def _queues() -> None:
    for number in range(ITEMS):
        api.push(queue=f"q{number}")


def _dead_letters() -> None:
    for number in range(ITEMS):
        in_state("discarded", queue=f"q{number}")


def _events() -> None:
    Event.primary.all().delete()
    for number in range(ITEMS):
        publish(EventType.QUEUE_PAUSED, of_queue, f"q{number}")


def _webhooks() -> None:
    for number in range(ITEMS):
        url = f"https://hooks.test/{number}"
        subscriptions.create(Subscription(url=url, events=["queue.paused"]))


def _workers() -> None:
    for number in range(ITEMS):
        worker(f"worker-{number}")


def _limit_keys() -> None:
    for number in range(ITEMS):
        api.push(rate_limit={"key": f"key-{number}", "concurrency": 1})


def _deliveries() -> None:
    webhook, _ = subscriptions.create(Subscription(url="https://hooks.test", events=["*"]))
    for _ in range(ITEMS):
        keys = {"id": ids.uuid7(), "event_id": ids.uuid7()}
        WebhookDelivery(webhook=webhook, event_type="queue.paused", **keys).save()


def _history_of_a_job() -> str:
    found = api.push(retry={"max_attempts": 9})
    for _ in range((ITEMS - 1) // 2):
        api.fetch()
        error = {"type": "Boom", "message": "it broke"}
        api.post("workers/nack", {"job_id": found["id"], "error": error}).ok()
        age(UUID(found["id"]), 10_000)
    return str(found["id"])


def _history_of_a_workflow() -> str:
    found = api.post("workflows", group(job("a"), job("b"), job("c"))).ok(201)
    for each in api.fetch(count=2):
        api.post("workers/ack", {"job_id": each["id"]}).ok()
    workflows.advance_due()
    return str(found["id"])


#: Each list that has pages: what fills it. That of one thing has its name in the path.
LISTS: dict[str, Callable[[], str | None]] = {
    "workflows": _workflows,
    "cron": _cron_jobs,
    "queues": _queues,
    "dead-letter": _dead_letters,
    "events": _events,
    "rate-limits": _limit_keys,
    "webhooks/subscriptions": _webhooks,
    "webhooks/deliveries": _deliveries,
    "jobs/{key}/history": _history_of_a_job,
    "workflows/{key}/history": _history_of_a_workflow,
    "admin/dead-letter": _dead_letters,
    "admin/jobs": _queues,
    "admin/queues": _queues,
    "admin/workers": _workers,
}


#: Those of the control plane have no cursors.
NUMBERED = [path for path in LISTS if path.startswith(("admin/", "rate-limits"))]


def _is_list(one: Operation) -> bool:
    if one.method != "GET":
        return False
    content = resolve(one.responses[200]).get("content", {}).get(JSON_TYPE, {})
    properties = resolve(content.get("schema", {})).get("properties", {})
    return bool(properties.keys() & {"pagination", "next_cursor", "cursor"})


def test_every_list_is_paged_here() -> None:
    found = {one.path.removeprefix("/ojs/v1/") for one in operations() if _is_list(one)}

    assert found == LISTS.keys()


def _items(body: dict[str, Any]) -> list[Any]:
    lists = [value for value in body.values() if isinstance(value, list)]
    # Some have their items twice, under two names.
    assert all(each == lists[0] for each in lists)
    return lists[0]


@pytest.mark.parametrize("path", LISTS)
def test_a_client_that_pages_sees_each_item_once_and_comes_to_an_end(path: str) -> None:
    path = re.sub(r"{\w+}", str(LISTS[path]()), path)
    whole = _items(api.get(f"{path}?limit=50").ok())
    assert len(whole) > 2
    for way in ("page", "offset", "cursor")[: 2 if path in NUMBERED else 3]:
        with named(way):
            pages = _walk(path, way)
            assert [item for page in pages for item in page] == whole
            assert all(len(page) == 2 for page in pages[: len(whole) // 2])


def _walk(path: str, way: str) -> list[list[Any]]:
    pages: list[list[Any]] = []
    size, cursor = "limit=2", ""
    while not pages or pages[-1]:
        assert len(pages) <= ITEMS, "it does not end"
        if way == "page":
            query = f"per_page=2&page={len(pages) + 1}"
        elif way == "offset":
            query = f"{size}&offset={2 * len(pages)}"
        else:
            query = size + cursor
        body = api.get(f"{path}?{query}").ok()
        pages.append(_items(body))
        if way == "cursor":
            described = body.get("pagination", body)
            if "cursor" in described:
                cursor = f"&after={described['cursor']}"
            elif not (following := described.get("next_cursor")):
                break
            else:
                cursor = f"&cursor={following}"
    return pages
