"""The limits of payload-limits §4, to the byte, on every way in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

import django_ojs as ojs
from django_ojs import conf
from django_ojs.spec import json
from django_ojs.spec.errors import OJSError
from tests.cases import together
from tests.factories import jobs
from tests.http.api import Api

pytestmark = pytest.mark.django_db

MIB = 2**20
#: A code, or None for a job that is stored.
Way = Callable[[dict[str, Any]], str | None]


def python(job: dict[str, Any]) -> str | None:
    return _rejection(lambda: ojs.enqueue(job["type"], job["args"], **_options(job)))


def python_batch(job: dict[str, Any]) -> str | None:
    small = ojs.request("test.job", [])
    large = ojs.request(job["type"], job["args"], **_options(job))
    return _rejection(lambda: ojs.enqueue_batch([small, large]))


def http(job: dict[str, Any]) -> str | None:
    return _code(Api().post("jobs", json.dumps(job).encode()).body)


def http_batch(job: dict[str, Any]) -> str | None:
    body = json.dumps({"jobs": [{"type": "test.job", "args": []}, job]}).encode()
    response = Api().post("jobs/batch", body)
    if response.status >= 400:
        assert response["error"]["details"]["index"] == 1
    return _code(response.body)


def _options(job: dict[str, Any]) -> Any:
    return {name: job[name] for name in ("queue", "meta") if name in job}


def _rejection(send: Callable[[], object]) -> str | None:
    try:
        send()
    except OJSError as error:
        return error.code
    return None


def _code(body: dict[str, Any]) -> str | None:
    return body["error"]["code"] if "error" in body else None


def of_size(size: int, make: Callable[[str], dict[str, Any]], part: Callable[[Any], Any]) -> Any:
    """Make a job of which a part has that many bytes, most of them of letters that have two."""
    rest = size - len(json.dumps(part(make(""))).encode())
    made = make("ä" * (rest // 2) + "x" * (rest % 2))
    assert len(json.dumps(part(made)).encode()) == size
    return made


def with_type(size: int) -> dict[str, Any]:
    return {"type": "t" * size, "args": []}


def with_queue(size: int) -> dict[str, Any]:
    return {"type": "test.job", "args": [], "queue": "q" * size}


def with_meta(size: int) -> Any:
    base = {"type": "test.job", "args": []}
    return of_size(size, lambda text: base | {"meta": {"m": text}}, lambda job: job["meta"])


def with_args(size: int) -> Any:
    return of_size(size, lambda text: {"type": "test.job", "args": [text]}, lambda job: job)


@pytest.mark.requirement("PL-002")
@pytest.mark.requirement("PL-003")
@pytest.mark.requirement("PL-004")
@pytest.mark.requirement("PL-008")
@together(
    ("make", "limit", "code"),
    [
        (with_type, 255, "JOB_TYPE_TOO_LONG"),
        (with_queue, 255, "QUEUE_NAME_TOO_LONG"),
        (with_meta, 64 * 1024, "METADATA_TOO_LARGE"),
        (with_args, 10 * MIB, "PAYLOAD_TOO_LARGE"),
    ],
    undo=True,
)
@together("way", [python, python_batch, http, http_batch], undo=True)
def test_the_limit_passes_and_a_byte_more_does_not(
    way: Way, make: Callable[[int], dict[str, Any]], limit: int, code: str
) -> None:
    assert way(make(limit)) is None
    stored = jobs().count()
    assert stored in (1, 2)
    assert way(make(limit + 1)) == code
    assert jobs().count() == stored


@pytest.mark.requirement("PL-001")
@pytest.mark.parametrize("way", [python, python_batch, http, http_batch])
def test_a_mebibyte_passes_however_low_the_limit_is_set(way: Way, settings: Any) -> None:
    settings.OJS = settings.OJS | {"MAX_ENVELOPE_BYTES": MIB, "HTTP_MAX_BODY_BYTES": 2 * MIB}
    assert way(with_args(MIB)) is None
    assert way(with_args(MIB + 1)) == "PAYLOAD_TOO_LARGE"


@pytest.mark.requirement("PL-001")
@pytest.mark.parametrize("name", ["MAX_ENVELOPE_BYTES", "HTTP_MAX_BODY_BYTES"])
def test_no_limit_can_be_set_below_a_mebibyte(name: str, settings: Any) -> None:
    settings.OJS = settings.OJS | {name: MIB - 1}
    with pytest.raises(ImproperlyConfigured, match=name):
        conf.settings()
