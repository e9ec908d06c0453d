"""No value that a request can hold is a 500: each place of each operation, with each hostile value.

Schemathesis draws what the schema allows and a little beside it. Here are the values at which
databases, drivers and number parsers break: NUL, surrogates, numbers that fit no column, years that
no calendar has.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

import pytest
from django.conf import settings as django_settings
from django.core.signals import request_finished
from django.db import close_old_connections, transaction
from django.test import Client, override_settings

import django_ojs as ojs
from django_ojs.operations import keyset
from django_ojs.spec.json import MAX_INTEGER
from tests import factories
from tests.factories import WorkerFactory
from tests.http.api import JSON_TYPE, Api
from tests.http.operations import Operation, operations, resolve
from tests.sizes import FULL

pytestmark = [pytest.mark.django_db, pytest.mark.once, pytest.mark.sized]

SEED = int(os.environ.get("OJS_TEST_SEED", "1"))
#: For each operation, of some thousand.
REQUESTS = int(os.environ.get("OJS_TEST_EXAMPLES", "100" if FULL else "5"))
API = Api()


@pytest.fixture(autouse=True)
def _recorded() -> Iterator[None]:
    """Webhooks need events, and their pages too."""
    given = {**django_settings.OJS, "KEEP_EVENTS": ["*"]}
    with override_settings(OJS=given):
        yield


DEEP: Any = "x"
for _ in range(120):
    DEEP = [{"a": DEEP}]
#: Stands for a number that only the text of JSON can hold.
HUGE = "\ue000huge\ue000"
VALUES: list[Any] = [
    *("", " ", "a\0b", "\0", "\ud800", "a\udfffb", "\u202e", "😀" * 300, "x" * 70_000),
    *("../..", "%", "%s", "%(a)s", "{}", "$", "\\", "'", '"', "a b", "٣", "-0", "1e5", "*", "a.*"),
    *("0000-00-00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999-14:00"),
    *("P99999999999999999999Y", "PT1E400S", "-PT1S", "P9999999W", "99999999-01-01T00:00:00Z"),
    *("2026-02-30T00:00:00Z", "2026-01-01T00:00:00+99:99", "00000000-0000-0000-0000-000000000000"),
    *(0, -1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**400, HUGE),
    *(0.5, -0.0, 1e308, True, None, [], [None], [[]], {}, {"": {}}, {"a\0": 1}, DEEP, [DEEP]),
    *(
        ["x"] * 3,
        ["a\0"],
        ["\ud800"],
        {"\ud800": "\ud800"},
        [2**64],
        ["x" * 300],
        list(range(2000)),
    ),
]
#: A UUIDv7 of a time that no calendar has.
LAST_ID = "ffffffff-ffff-7fff-bfff-ffffffffffff"
TEXTS = [
    *("%00", "a%00b", "%ff%fe", "%ed%a0%80", "%F0%9F%98%80", "x" * 5_000, "..", "%2e%2e%2f", "%25"),
    *("0", "-1", "1e9", "9" * 30, "9" * 5_000, str(2**63), str(2**31), "٣", "0x10", "NaN", "inf"),
    *("*", "true", "null", "[]", "a,b,,", "%2C", "'", '"', "%0d%0aX: y", "%20", "P9999999999Y"),
    *("0001-01-01T00:00:00%2B14:00", "9999-12-31T23:59:59-14:00", "2026-02-30", "99999-01-01"),
    *("00000000-0000-0000-0000-000000000000", LAST_ID, f"evt_{LAST_ID}", f"%7B{LAST_ID}%7D"),
    *("a," * 3_000, "%C2%B2", "%2B1", "1_000", "job:", "queue:%00", "a.*.b", "P365001D"),
]
HEADERS = [
    *("OJS-Block-Timeout", "OJS-Version", "Last-Event-ID", "X-Request-Id", "Cache-Control"),
    *("Authorization", "If-None-Match", "If-Modified-Since", "Accept", "Accept-Encoding"),
    *("Content-Encoding", "traceparent", "Idempotency-Key", "Accept-Language", "Prefer"),
    *("Origin", "Cookie", "Range", "Forwarded", "X-Forwarded-For", "If-Match", "tracestate"),
]
#: Two numbers each.
TWICE = [(-1, -1), (2**31, 0), (0, MAX_INTEGER), (-MAX_INTEGER, MAX_INTEGER)]
_PARTS: list[Any] = [
    *("", "x" * 900, "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", LAST_ID, "f" * 32),
    *(-1, 2**31, MAX_INTEGER, -MAX_INTEGER),
]
#: Cursors as a client might forge them, of lists of each kind.
CURSORS = [
    *([part] for part in _PARTS),
    *([one, other] for one in _PARTS for other in _PARTS),
    *([moment, key, *numbers] for moment in _PARTS[:4] for key in _PARTS[3:6] for numbers in TWICE),
]


def sample(schema: dict[str, Any], depth: int = 0) -> Any:
    """Return a value with all that the schema knows of."""
    schema = resolve(schema)
    for name in ("example", "default", "const"):
        if name in schema:
            return deepcopy(schema[name])
    if "examples" in schema:
        return deepcopy(schema["examples"][0])
    if "enum" in schema:
        return schema["enum"][0]
    for name in ("oneOf", "anyOf"):
        if name in schema:
            return sample(schema[name][0], depth)
    if "allOf" in schema:
        parts = [sample(part, depth) for part in schema["allOf"]]
        whole = [part for part in parts if isinstance(part, dict)]
        return {name: part[name] for part in whole for name in part} if whole else parts[0]
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object" or "properties" in schema:
        if depth > 5:
            return {}
        properties = schema.get("properties", {})
        return {name: sample(value, depth + 1) for name, value in properties.items()}
    if kind == "array":
        return [sample(schema["items"], depth + 1)] if "items" in schema else []
    if kind in ("integer", "number"):
        return max(1, schema.get("minimum", 1))
    if kind == "boolean":
        return True
    formats = {
        "uuid": str(ojs.new_id()),
        "date-time": "2030-01-01T00:00:00Z",
        "uri": "https://a.b/",
    }
    return formats.get(schema.get("format", ""), "PT1M" if "uration" in str(schema) else "text")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    pairs: Any = ()
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = enumerate(value)
    for name, each in pairs:
        yield from places(each, (*path, name))


def changed(body: Any, path: tuple[Any, ...], value: Any) -> bytes:
    """Return the body with this value in one place."""
    whole = [deepcopy(body)]
    here: Any = whole
    for name in (last := (0, *path))[:-1]:
        here = here[name]
    here[last[-1]] = value
    return encode(whole[0])


def encode(body: Any) -> bytes:
    return json.dumps(body).replace(json.dumps(HUGE), "1e400").encode()


def real(path: str) -> str:
    """Return what the name in a path is called, of something that exists."""
    if "workflows" in path:
        return str(ojs.chain(ojs.request("test.job"), ojs.request("b")).enqueue().id)
    if "webhooks/subscriptions" in path:
        hook = {"url": "https://example.com/", "events": ["job.failed"]}
        return str(API.post("webhooks/subscriptions", hook).ok(201)["id"])
    if "workers" in path:
        WorkerFactory(id="w")
        return "w"
    if "queues" in path:
        factories.push(queue="q")
        return "q"
    if "cron" in path:
        cron = {"name": "nightly", "cron": "0 0 * * *", "type": "a", "args": []}
        API.post("cron", cron)
        return "nightly"
    if "rate-limits" in path:
        API.put("rate-limits/k", {"concurrency": 3}).ok()
        return "k"
    if "dead-letter" in path:
        return str(factories.in_state("discarded").pk)
    return str(factories.active(queue="active").id)


_NAME = re.compile(r"{\w+}")


def with_real_name(path: str) -> str:
    """Return a path of the document with the name of something that exists."""
    name = _NAME.search(path)
    return path.replace(name[0], real(path)) if name else path


class Hostile(NamedTuple):
    """A request, and what is hostile about it."""

    path: str
    body: Callable[[], bytes]
    headers: dict[str, str]
    what: str


def requests(operation: Operation) -> Iterator[Hostile]:
    if name := _NAME.search(operation.path):
        for text in TEXTS:
            yield Hostile(operation.path.replace(name[0], text), bytes, {}, f"path {text[:40]}")
    path = with_real_name(operation.path)
    content = resolve(operation.content.get("requestBody", {})).get("content", {})
    body: Any = sample(next(iter(content.values()))["schema"]) if content else None
    for where in places(body) if content else ():
        for value in VALUES:
            data = partial(changed, body, where, value)
            yield Hostile(path, data, {}, f"body {where} {str(value)[:40]!r}")
    given = partial(encode, body) if content else bytes
    for parameter in operation.parameters:
        if parameter["in"] == "query":
            forged = (keyset.write(tuple(each)) for each in CURSORS)
            for text in [*TEXTS, *(forged if parameter["name"] in ("cursor", "after") else ())]:
                query = f"{parameter['name']}={text}"
                yield Hostile(f"{path}?{query}", given, {}, query[:60])
    for header in HEADERS:
        for text in TEXTS:
            # As a server hands the bytes of a header on: one character for each.
            value = unquote_to_bytes(text).decode("latin-1")
            yield Hostile(path, given, {header: value}, f"{header}: {text[:40]}")


@pytest.mark.parametrize("operation", operations(), ids=lambda each: each.id)
def test_no_value_is_a_500(operation: Operation) -> None:
    client = Client(raise_request_exception=False)
    found = list(requests(operation))
    chosen = random.Random(f"{SEED} {operation.id}").sample(found, min(REQUESTS, len(found)))
    for path, body, headers, what in chosen:
        with transaction.atomic():
            response = client.generic(operation.method, path, body(), JSON_TYPE, headers=headers)
            assert response.status_code < 500, (what, response.content)
            if response.streaming:
                request_finished.disconnect(close_old_connections)
                response.close()
                request_finished.connect(close_old_connections)
            transaction.set_rollback(True)


def test_a_body_that_is_no_object_is_rejected_by_every_operation() -> None:
    found = [each for each in operations() if "requestBody" in each.content]
    assert len(found) > 30
    for operation in found:
        path = with_real_name(operation.path)
        for body in (b"[]", b'"x"', b"1", b"null"):
            response = Client().generic(operation.method, path, body, JSON_TYPE)
            assert response.status_code == 400, (operation.id, body, response.content)
            assert response.json()["error"]["message"] == "the body must be a JSON object"
