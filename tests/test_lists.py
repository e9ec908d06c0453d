"""Lists through each door: however their pages are turned, each item is seen once, and they end."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any
from uuid import UUID

import pytest

from django_ojs.admin import base
from django_ojs.extensions.audit import admin as audit
from django_ojs.extensions.events import admin as events
from django_ojs.extensions.events.models import Event
from django_ojs.extensions.workflows import operations as workflows
from django_ojs.hooks import publish
from django_ojs.spec.published import EventType, of_queue
from tests import listed
from tests.admin.users import at, root
from tests.cases import named
from tests.command_line.run import ojs
from tests.factories import WorkerFactory, age
from tests.http.api import JSON_TYPE, Api
from tests.http.operations import Operation, operations, resolve
from tests.listed import ROWS
from tests.model_factories import AuditEntryFactory
from tests.operations.workflows.scenes import chain, group, job

pytestmark = pytest.mark.django_db

api = Api()


def _workflows() -> None:
    for _ in range(ROWS):
        api.post("workflows", chain(job("a"))).ok(201)


def _events() -> None:
    Event.primary.all().delete()
    for number in range(ROWS):
        publish(EventType.QUEUE_PAUSED, of_queue, f"q{number}")


def _workers() -> None:
    for number in range(ROWS):
        WorkerFactory(id=f"worker-{number}")


def _limit_keys() -> None:
    for number in range(ROWS):
        api.push(rate_limit={"key": f"key-{number}", "concurrency": 1})


def _history_of_a_job() -> str:
    found = api.push(retry={"max_attempts": 9})
    for _ in range((ROWS - 1) // 2):
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
    "cron": listed.cron_jobs,
    "queues": listed.queues,
    "dead-letter": listed.dead_letters,
    "events": _events,
    "rate-limits": _limit_keys,
    "webhooks/subscriptions": listed.webhooks,
    "webhooks/deliveries": listed.deliveries,
    "jobs/{key}/history": _history_of_a_job,
    "workflows/{key}/history": _history_of_a_workflow,
    "admin/dead-letter": listed.dead_letters,
    "admin/jobs": listed.queues,
    "admin/queues": listed.queues,
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


@pytest.mark.once
@pytest.mark.parametrize("path", LISTS)
def test_a_page_that_cannot_be_is_rejected(path: str) -> None:
    path = re.sub(r"{\w+}", str(LISTS[path]()), path)
    wrong = ["limit=0", "limit=-1", "limit=ten", "page=0", "per_page=0", "offset=-1"]
    if path not in NUMBERED:
        wrong += ["offset=10001", "offset=99999999999999999999", "page=5000"]
    if path not in (*NUMBERED, "events"):
        texts = ("x", "!!!!", "WyJhIiwiYiJd", "WyJ4IiwieSJd", "e30", "A" * 2000, "%C3%A9", "%00")
        wrong += [f"cursor={text}" for text in texts]
    for query in wrong:
        with named(query):
            field = query.partition("=")[0]
            api.get(f"{path}?{query}").error(400, "invalid_request", field=field)


@pytest.mark.once
@pytest.mark.parametrize("path", LISTS)
def test_a_page_says_how_many_items_there_are_and_whether_it_is_the_last(path: str) -> None:
    numbered = path in NUMBERED
    path = re.sub(r"{\w+}", str(LISTS[path]()), path)
    whole = len(_items(api.get(f"{path}?limit=50").ok()))
    for number, is_last in ((1, False), (-(-whole // 2), True)):
        body = api.get(f"{path}?per_page=2&page={number}").ok()
        found = body.get("pagination", body)
        if numbered:
            assert found == {"total": whole, "page": number, "per_page": 2}
        elif "pagination" in body:
            following = found.pop("next_cursor", None)
            assert (following is None) is is_last
            page = {"limit": 2, "offset": 2 * number - 2, "page": number, "per_page": 2}
            assert found == {"total": whole, "has_more": not is_last, **page}
        elif "total" in body:
            assert (body["total"], body["next_cursor"] is None) == (whole, is_last)
        else:
            assert body["has_more"] is not is_last


def _walk(path: str, way: str) -> list[list[Any]]:
    pages: list[list[Any]] = []
    size, cursor = "limit=2", ""
    while not pages or pages[-1]:
        assert len(pages) <= ROWS, "it does not end"
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


def _audit_entries() -> None:
    # Programs leave entries between those of people, which are listed.
    for number in range(ROWS):
        for kind in ("user", "api_key", "api_key"):
            AuditEntryFactory(actor_kind=kind, object_id=f"q{number}")


#: Each page of the admin that is turned by cursors.
PAGES: dict[str, Callable[[], None]] = {
    "job": listed.queues,
    "job/?q=type:*": listed.queues,
    "workflow": _workflows,
    "cronjob": listed.cron_jobs,
    "cronjob/?q=cron": listed.cron_jobs,
    "event": _events,
    "event/?type=queue.paused": _events,
    "auditentry": _audit_entries,
    "auditentry/?by=all": _audit_entries,
    "bulkoperation": listed.bulk_operations,
}


def _shown(page: str) -> list[tuple[str, ...]]:
    """Return the rows of a page, each as the links that it has."""
    body = page.partition("<tbody>")[2].partition("</tbody>")[0]
    return [tuple(re.findall(r'(?:href|value)="([^"]*)"', row)) for row in body.split("<tr")[1:]]


def _link(page: str, text: str) -> str | None:
    found = re.search(rf'<a href="([^"]*)">{text}</a>', page)
    return None if found is None else unescape(found[1])


@pytest.mark.parametrize("path", PAGES)
def test_a_page_of_the_admin_is_turned_to_the_end_and_back(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    PAGES[path]()
    client = root()
    model, _, query = path.partition("/?")
    address = at(f"{model}/")

    def get(query: str) -> str:
        return str(client.get(address + query).content.decode())

    whole = _shown(get(f"?{query}"))
    assert len({*whole}) >= ROWS
    monkeypatch.setattr(base, "PER_PAGE", 2)
    # A page ends where its scan does, and may have no row.
    monkeypatch.setattr(events, "SCAN_LIMIT", 3)
    monkeypatch.setattr(audit, "SCAN_LIMIT", 2)
    pages = [get(f"?{query}")]
    while (following := _link(pages[-1], "(?:Next|Search further) .")) is not None:
        assert len(pages) < 5 * ROWS, "it does not end"
        pages.append(get(following))
    assert [row for page in pages for row in _shown(page)] == whole
    back = [pages[-1]]
    while (before := _link(back[0], ". Previous")) is not None:
        assert len(back) < 5 * ROWS, "it does not end"
        back.insert(0, get(before))
    assert [row for page in back for row in _shown(page)] == whole
    first = _link(pages[-1], "« First")
    assert first is not None
    assert _shown(get(first)) == _shown(pages[0])


@pytest.mark.once
@pytest.mark.parametrize("path", PAGES)
def test_a_page_of_the_admin_that_does_not_exist_is_the_first_and_says_so(path: str) -> None:
    PAGES[path]()
    client = root()
    model, _, query = path.partition("/?")
    for cursor in ("x", "\x00", "9" * 3000, "W10"):
        for name in ("after", "before"):
            found = client.get(at(f"{model}/?{query}"), {name: cursor})
            assert (found.status_code, len(_shown(found.content.decode())) >= ROWS) == (
                200,
                True,
            )
            assert "this is the first page" in found.content.decode()


@pytest.mark.once
@pytest.mark.parametrize("command", [("jobs",), ("workflows", "list")])
def test_a_list_of_the_command_line_goes_on_after_its_next(command: tuple[str, ...]) -> None:
    (listed.queues if command == ("jobs",) else _workflows)()
    (whole,) = (each for each in ojs(*command, "--json").json.values() if each)
    seen: list[Any] = []
    after: tuple[str, ...] = ()
    while True:
        page = ojs(*command, "--limit", "2", "--json", *after).json
        following = page.pop("next")
        (rows,) = page.values()
        seen += rows
        assert len(seen) <= ROWS
        if following is None:
            break
        assert f"--after={following}" in ojs(*command, "--limit", "2", *after).out
        after = ("--after", following)
    assert [each["id"] for each in seen] == [each["id"] for each in whole]
    for wrong in ("x", ""):
        found = ojs(*command, "--after", wrong)
        assert (found.code, "must be the `next`" in found.err) == (2, True)
