"""The OpenAPI document: valid, true to the code, and served as every response is."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import Client
from django.urls import URLPattern
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from openapi_spec_validator import OpenAPIV31SpecValidator

import django_ojs
from django_ojs.extensions.backpressure import http as backpressure
from django_ojs.extensions.events.operations import log
from django_ojs.extensions.events.spec import SPECVERSION
from django_ojs.extensions.statistics import history
from django_ojs.http import headers, pagination, urls
from django_ojs.http.views.base import UnknownPath
from django_ojs.http.views.openapi import DOCUMENT
from django_ojs.http.views.workers import LONGEST_WAIT_MS
from django_ojs.models.worker import Directive
from django_ojs.operations import fetch
from django_ojs.operations.jobs import bulk, numbered_pages
from django_ojs.operations.maintenance import mode
from django_ojs.operations.queues import QueueState
from django_ojs.spec import envelope, json
from django_ojs.spec.published import EventType
from django_ojs.spec.queue_config import STRATEGIES
from django_ojs.spec.retry_policy import MAX_ATTEMPTS_LIMIT
from django_ojs.spec.states import TERMINAL, State
from django_ojs.spec.times import MAX_DURATION
from tests.cases import together
from tests.http.operations import Operation, operations, resolve, tags

METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH")
MEDIA_TYPE = "application/openjobspec+json"
#: Of the responses that are not, or not always, JSON.
OTHER_TYPES = {
    "metrics": ["text/plain"],
    "readEvents": [MEDIA_TYPE, "text/event-stream"],
    "streamEvents": ["text/event-stream"],
    "subscribeJobEvents": ["text/event-stream"],
    "streamJobProgress": ["text/event-stream"],
    "subscribeQueueEvents": ["text/event-stream"],
}
ERRORS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    413: "ContentTooLarge",
    415: "UnsupportedMediaType",
    422: "UnprocessableContent",
    429: "TooManyRequests",
    500: "InternalServerError",
    503: "ServiceUnavailable",
    504: "GatewayTimeout",
}

PACKAGE = Path(django_ojs.__file__).parent
#: Where the parts of the document are.
FOLDERS = [
    "http",
    *sorted(
        str(each.parent.relative_to(PACKAGE)) for each in PACKAGE.glob("extensions/*/openapi.yaml")
    ),
]

each_operation = together("operation", operations(), ids=lambda one: one.id)


def _served() -> dict[tuple[str, str], Any]:
    """Return the scope that each method of each route needs."""
    found = {}
    for pattern in urls.urlpatterns:
        assert isinstance(pattern, URLPattern)
        view: Any = pattern.callback
        if view.cls is not UnknownPath:
            path = re.sub(r"<(?:str|path):(\w+)>", r"{\1}", f"/{pattern.pattern}")
            for method in set(view.cls().allowed_methods) & set(METHODS):
                found[method, path] = view.cls.needs.get(method)
    return found


def test_every_method_of_every_route_is_described_with_its_scope_and_nothing_else_is() -> None:
    described = {(one.method, one.path): one.scope for one in operations()}

    assert described == _served()


def test_operations_have_ids_of_their_own_and_every_tag_is_used() -> None:
    ids = [one.id for one in operations()]

    assert len(set(ids)) == len(ids)
    assert {tag for one in operations() for tag in one.content["tags"]} == set(tags())
    assert all(len(one.content["tags"]) == 1 for one in operations())


def test_the_document_is_valid_openapi_3_1() -> None:
    assert DOCUMENT.read()["openapi"] == "3.1.0"
    OpenAPIV31SpecValidator(DOCUMENT.read()).validate()


def test_a_client_cannot_set_an_attribute_that_the_document_gives_a_job() -> None:
    # What is not known is kept as it was sent, and would be returned with any value.
    sent = dict.fromkeys(DOCUMENT.read()["components"]["schemas"]["Job"]["properties"])
    assert envelope.parse({**sent, "type": "a", "args": []}).extra == {}


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_key_is_written_twice(folder: str) -> None:
    # The parser would take the last one, and lose the others.
    def check(node: yaml.Node) -> None:
        if isinstance(node, yaml.MappingNode):
            keys = [key.value for key, _ in node.value]
            assert len(set(keys)) == len(keys), (node.start_mark.line + 1, keys)
        for child in node.value if isinstance(node.value, list) else ():
            for each in child if isinstance(child, tuple) else (child,):
                check(each)

    check(yaml.compose((PACKAGE / folder / "openapi.yaml").read_bytes()))


def test_no_part_of_an_extension_replaces_another() -> None:
    parts = [yaml.safe_load((PACKAGE / folder / "openapi.yaml").read_bytes()) for folder in FOLDERS]
    names = [path for part in parts for path in part.get("paths", {})]
    for part in parts:
        for kind, components in part.get("components", {}).items():
            for name, own in components.items():
                # Nothing but members: they are added to an object of the core.
                names += [f"{kind}/{name}"] if own.keys() != {"properties"} else []
                names += [f"{kind}/{name}/{member}" for member in own.get("properties", ())]
    assert len(set(names)) == len(names)


def test_every_component_is_used() -> None:
    text = str(DOCUMENT.read())
    # Of the methods that a path does not have: no operation can refer to it.
    unused = {"MethodNotAllowed"}

    for kind in ("schemas", "headers", "parameters", "responses"):
        for name in DOCUMENT.read()["components"][kind].keys() - unused:
            assert re.search(f"#/components/{kind}/{name}['/]", text), name


@each_operation
def test_an_operation_without_a_scope_needs_no_credentials(operation: Operation) -> None:
    assert operation.content.get("security") == (None if operation.scope else [])


@each_operation
def test_an_operation_has_the_errors_that_such_a_request_may_have(operation: Operation) -> None:
    expected = {400, 422, 500, 503}
    expected |= {401, 403} if operation.scope else set()
    expected |= {413, 415} if "requestBody" in operation.content else set()
    expected |= {404} if "{" in operation.path else set()

    statuses = {status for status in operation.responses if status >= 400}

    assert statuses >= expected
    assert statuses - expected <= {404, 409, 429, 504}
    for status in filter(operation.is_error, statuses):
        assert operation.responses[status] == {"$ref": f"#/components/responses/{ERRORS[status]}"}
    if operation.id not in ("health", "ready"):
        assert all(map(operation.is_error, statuses))


@each_operation
def test_what_every_request_and_response_has_is_described(operation: Operation) -> None:
    assert {"OJS-Version", "X-Request-Id"} <= {one["name"] for one in operation.parameters}
    variables = {one["name"] for one in operation.parameters if one["in"] == "path"}
    assert variables == set(re.findall(r"{(\w+)}", operation.path))
    for status, found in operation.responses.items():
        response = resolve(found)
        assert {"OJS-Version", "X-Request-Id"} <= response["headers"].keys()
        kinds = OTHER_TYPES.get(operation.id, []) if status == 200 else []
        is_empty = status in (101, 204)
        assert list(response.get("content", [])) == ([] if is_empty else kinds or [MEDIA_TYPE])
    if "requestBody" in operation.content:
        content = operation.content["requestBody"]["content"]
        assert list(content) == [MEDIA_TYPE, "application/json"]
        assert content[MEDIA_TYPE] == content["application/json"]


def _at(place: str) -> Any:
    """Return what is at a place of the components, or of an operation's parameters."""
    found: Any = DOCUMENT.read()["components"]
    for name in place.split("/"):
        if isinstance(found, list):
            found = found[int(name)]
        else:
            # A description may stand beside a reference.
            found = found[name] if name in found else resolve(found)[name]
    return found


STATES = [state.value for state in State]
CONSTANTS = {
    "headers/OJS-Version/schema/const": headers.VERSION,
    "parameters/OJS-Version/schema/enum": sorted(headers.VERSIONS),
    "parameters/Limit/schema/default": pagination.DEFAULT_LIMIT,
    "parameters/Offset/schema/maximum": pagination.MAX_OFFSET,
    "parameters/Page/schema/maximum": pagination.MAX_PAGE,
    "parameters/Sort/schema/enum": list(numbered_pages.SORTS),
    "schemas/AdminCounts/required": STATES,
    "schemas/Bound/maximum": json.MAX_INTEGER,
    "schemas/BulkRequest/properties/job_ids/maxItems": bulk.LIMIT,
    "schemas/DeadLetterBulkRequest/properties/job_ids/maxItems": bulk.LIMIT,
    "schemas/Directive/enum": Directive.values,
    "schemas/Event/properties/specversion/enum": [SPECVERSION],
    "schemas/Event/properties/type/enum": list(EventType),
    "schemas/FetchRequest/properties/count/maximum": fetch.MAX_COUNT,
    "schemas/FetchRequest/properties/wait_ms/maximum": LONGEST_WAIT_MS,
    "schemas/Integer32/maximum": envelope.MAX_TIMEOUT_MS,
    "schemas/JobRequest/properties/specversion/enum": sorted(envelope.SPECVERSIONS),
    "schemas/JobState/enum": STATES,
    "schemas/MaintenanceRequest/properties/reason/maxLength": mode.MAX_REASON,
    "schemas/Milliseconds/maximum": envelope.MAX_TIMEOUT_MS,
    "schemas/OverflowStrategy/enum": list(STRATEGIES),
    "schemas/Priority/maximum": envelope.MAX_PRIORITY,
    "schemas/Priority/minimum": envelope.MIN_PRIORITY,
    "schemas/PurgeRequest/properties/states/items/enum": [s for s in STATES if s != State.ACTIVE],
    "schemas/QueueConfigRequest/properties/max_envelope_bytes/maximum": (
        envelope.DEFAULT_LIMITS.envelope_bytes
    ),
    "schemas/QueueStats/properties/status/enum": list(QueueState),
    "schemas/RetryRequest/properties/max_attempts/maximum": MAX_ATTEMPTS_LIMIT,
    "schemas/Timeout/maximum": envelope.MAX_TIMEOUT_MS // 1000,
    "schemas/TimeoutMs/maximum": envelope.MAX_TIMEOUT_MS,
    "schemas/UniqueRequest/properties/period_ms/maximum": MAX_DURATION / timedelta(milliseconds=1),
}
TEXTS = {
    "parameters/Limit": f"A number over {pagination.MAX_LIMIT} counts as {pagination.MAX_LIMIT}.",
    "parameters/OJS-Block-Timeout": (
        f"More than {backpressure.LONGEST_BLOCK} count as {backpressure.LONGEST_BLOCK}."
    ),
    "parameters/OJS-Version": f"unless it is {headers.VERSION} or left out",
    "parameters/PerPage": (
        f"{pagination.DEFAULT_PER_PAGE} by default. "
        f"A number over {pagination.MAX_PER_PAGE} counts as {pagination.MAX_PER_PAGE}."
    ),
    "schemas/PurgeRequest/properties/older_than": ", ".join(sorted(TERMINAL)),
    "schemas/TimeoutPeriod": f"{envelope.MAX_TIMEOUT_MS // 1000} seconds",
    "schemas/Value": (f"{-json.MAX_INTEGER} to {json.MAX_INTEGER}, {json.MAX_DEPTH} levels"),
}


@together("place", CONSTANTS)
def test_a_limit_or_a_choice_is_the_one_of_the_code(place: str) -> None:
    assert _at(place) == CONSTANTS[place]


@together("place", TEXTS)
def test_a_limit_in_a_description_is_the_one_of_the_code(place: str) -> None:
    assert TEXTS[place] in _at(f"{place}/description")


def test_the_parameters_of_one_operation_have_the_limits_of_the_code() -> None:
    found = {(one.id, each["name"]): each for one in operations() for each in one.parameters}

    limit = found["readEvents", "limit"]
    assert limit["schema"]["default"] == log.DEFAULT_LIMIT
    assert limit["description"] == f"A number above {log.MAX_LIMIT} counts as {log.MAX_LIMIT}."
    assert found["getHistory", "period"]["schema"]["enum"] == list(history.PERIODS)


def test_the_bulk_operations_name_their_limit() -> None:
    found = [one for one in operations() if "/bulk/" in one.path]

    assert len(found) == 3
    assert all(f"up to {bulk.LIMIT:,} in one call" in one.content["description"] for one in found)


def test_counts_by_state_name_every_state() -> None:
    for schema in ("QueueDetail/allOf/1/properties/stats", "QueueStats/properties/stats"):
        assert set(STATES) <= _at(f"schemas/{schema}/properties").keys()


def test_the_version_is_that_of_the_protocol() -> None:
    assert DOCUMENT.read()["info"]["version"] == headers.VERSION


def test_the_document_of_a_project_does_not_mention_these_routes() -> None:
    found = SchemaGenerator(urlconf="tests.urls").get_schema(public=True)  # type: ignore[no-untyped-call]  # it has no types

    assert found["paths"] == {}
    assert not GENERATOR_STATS


def test_the_file_is_read_once_until_it_is_reset() -> None:
    first = DOCUMENT.read()

    assert DOCUMENT.read() is first
    DOCUMENT.reset()
    assert DOCUMENT.read() is not first
    assert DOCUMENT.read() == first


def test_it_is_public_and_has_the_media_type_of_every_response(client: Client) -> None:
    response = client.get("/ojs/v1/openapi.json")

    assert response.status_code == 200
    assert response["Content-Type"] == MEDIA_TYPE
    assert response["OJS-Version"] == "1.0"
    assert response.json() == {**DOCUMENT.read(), "servers": [{"url": "/"}]}


def test_below_a_prefix_it_names_the_prefix_as_its_server(client: Client) -> None:
    response = client.get("/ojs/v1/openapi.json", SCRIPT_NAME="/queue")

    assert response.json()["servers"] == [{"url": "/queue"}]
