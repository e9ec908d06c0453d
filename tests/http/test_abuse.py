"""The table of abuse: each error names what is wrong, quickly, and nothing is stored."""

from __future__ import annotations

import gzip
import io
import time
import tracemalloc
from typing import Any

import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.test import RequestFactory

from django_ojs.http import parsers
from tests.cases import together
from tests.http.abuse import MIB, STORED, TABLE, TOO_LARGE, Abuse, job, sized
from tests.http.api import JSON_TYPE, Api, ApiResponse, framed, stored

pytestmark = [pytest.mark.django_db, pytest.mark.once]

#: Rejected in 0.4 ms in the median, 75 ms at most (10 MiB and one byte); the slowest that is stored
#: takes 770 ms (a million values), all on PostgreSQL. These are seconds of the processor, since a
#: busy machine makes others wait for it: quadratic work on a megabyte takes minutes.
REJECTED_WITHIN, STORED_WITHIN = 5, 20
#: Of memory, for each byte of a body: Python's objects are larger than their text.
FACTOR, FLOOR = 100, 16 * MIB
api = Api()


def send(abuse: Abuse, body: bytes) -> ApiResponse:
    return api.post(abuse.path, body, headers=abuse.headers)


@together("abuse", TABLE, ids=lambda abuse: abuse.name, undo=True)
def test_the_error_names_what_is_wrong_and_nothing_is_stored(abuse: Abuse) -> None:
    body = abuse.make()
    began = time.process_time()
    response = send(abuse, body)
    took = time.process_time() - began
    if abuse.response == STORED:
        key = response.ok(201)["job"]["id"]
        assert api.info(key)["args"] == response["job"]["args"]
        assert stored() == 1
    else:
        response.error(*abuse.response)
        assert len(response.raw.content) < 2_000
        assert stored() == 0
    assert took < (STORED_WITHIN if abuse.response == STORED else REJECTED_WITHIN)


@pytest.mark.parametrize(
    "abuse",
    [abuse for abuse in TABLE if abuse.response != STORED and len(abuse.make()) > 900_000],
    ids=lambda abuse: abuse.name,
)
def test_what_is_rejected_takes_little_memory(abuse: Abuse) -> None:
    body = abuse.make()
    send(abuse, b"{}")  # What is loaded and kept by a first request is no matter of this one.
    tracemalloc.start()
    try:
        send(abuse, body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < FLOOR + FACTOR * min(len(body), 16 * MIB)


class Endless(io.RawIOBase):
    """A body without end, which counts how much of it was read, and in how large pieces."""

    def __init__(self) -> None:
        self.given = self.largest = 0

    def read(self, size: int = -1) -> bytes:
        self.given += size
        self.largest = max(self.largest, size)
        return b"x" * size


def raw(body: Any, length: str | None, **more: Any) -> ApiResponse:
    """Send a body with a Content-Length of its own, past the test client's care for it."""
    environ = RequestFactory().generic("POST", "/ojs/v1/jobs", b"", JSON_TYPE).environ
    environ |= {"wsgi.input": body, "CONTENT_TYPE": JSON_TYPE, **more}
    environ.pop("CONTENT_LENGTH", None)
    if length is not None:
        environ["CONTENT_LENGTH"] = length
    handler = WSGIHandler()
    with pytest.MonkeyPatch.context() as patch:
        # The signals of a real request would close the connection of the test.
        patch.setattr("django.core.handlers.wsgi.signals.request_started.send", lambda **kw: None)
        return framed(handler(environ, lambda status, headers: None))


@pytest.mark.parametrize("part", [b"[]", b"{}", b'{"a":1}'])
def test_a_body_of_very_many_small_parts_is_rejected_before_it_is_read(
    part: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = job(b"[" + b",".join([part] * (10 * MIB // (len(part) + 1))) + b"]")
    monkeypatch.setattr(parsers.json, "loads", lambda *args, **values: pytest.fail("it is read"))
    response = api.post("jobs", text).error(400, "invalid_payload")
    assert "at most 1048576 arrays" in response["message"]


def test_a_mebibyte_of_small_parts_and_brackets_in_strings_pass() -> None:
    api.post("jobs", job(b"[" + b",".join([b"[]"] * (MIB // 3 - 100)) + b"]")).ok(201)
    api.post("jobs", job(b'["' + b'[{:\\"' * (MIB // 2) + b'"]')).ok(201)


class TestContentLength:
    @pytest.mark.parametrize("more", [1, 1_000, 10 * MIB])
    def test_a_body_that_ends_before_it_is_rejected_though_it_looks_complete(
        self, more: int
    ) -> None:
        response = raw(io.BytesIO(job()), str(len(job()) + more))
        assert "Content-Length" in response.error(400, "invalid_payload")["message"]
        assert stored() == 0

    def test_what_comes_after_it_is_not_read(self) -> None:
        assert raw(io.BytesIO(job() + b"x" * 999), str(len(job()))).status == 201

    def test_a_body_that_is_cut_by_it_is_no_json(self) -> None:
        raw(io.BytesIO(job()), str(len(job()) - 1)).error(400, "invalid_payload")

    @pytest.mark.parametrize(
        ("length", "read"),
        # Django takes a number of thousands of digits for none.
        [(str(16 * MIB + 1), 16 * MIB + 1), ("9" * 19, 64 * MIB), ("9" * 5_000, 0)],
    )
    def test_of_too_much_a_bounded_part_is_read_in_pieces_and_discarded(
        self, length: str, read: int
    ) -> None:
        # Without that, a client that sends all of it first would not see the response.
        body = Endless()
        raw(body, length).error(413, "PAYLOAD_TOO_LARGE", field="body", max_bytes=16 * MIB)
        assert body.given == read
        assert body.largest <= MIB

    @together("length", [None, "", "0", "-1", "x", "1e9", "0x10", "٣", "²", "1 2"], undo=True)
    def test_without_one_that_is_a_number_there_is_no_body(self, length: str | None) -> None:
        raw(io.BytesIO(job()), length).error(400, "invalid_payload")

    def test_a_connection_that_breaks_is_a_400(self) -> None:
        class Broken(io.RawIOBase):
            def read(self, size: int = -1) -> bytes:
                raise OSError("connection reset by peer")

        raw(Broken(), "100").error(400, "invalid_payload")


class TestChunks:
    """What a server that reads chunks, gunicorn for one, hands on: a stream that ends by itself."""

    def send(self, body: Any, **more: Any) -> ApiResponse:
        values = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True, **more}
        return raw(body, None, **values)

    def test_a_body_without_a_length_is_read_to_its_end(self) -> None:
        job_id = self.send(io.BytesIO(job(b"[1]"))).ok(201)["job"]["id"]
        assert api.info(job_id)["args"] == [1]

    def test_so_is_one_whose_length_the_server_sets_empty(self) -> None:
        values = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}
        assert raw(io.BytesIO(job(b"[1]")), "", **values).status == 201

    def test_so_is_one_that_is_packed(self) -> None:
        body = io.BytesIO(gzip.compress(job(b"[1]")))
        assert self.send(body, HTTP_CONTENT_ENCODING="gzip").status == 201

    def test_one_without_an_end_is_read_to_the_limit_and_a_bounded_part_discarded(self) -> None:
        body = Endless()
        self.send(body).error(413, "PAYLOAD_TOO_LARGE", field="body", max_bytes=16 * MIB)
        assert body.given <= 16 * MIB + 1 + 64 * MIB

    def test_no_chunk_but_the_last_is_an_empty_body(self) -> None:
        message = self.send(io.BytesIO()).error(400, "invalid_payload")["message"]
        assert "empty" in message

    @pytest.mark.parametrize("error", [OSError, ValueError])
    def test_chunks_that_the_server_cannot_read_are_a_400(self, error: type[Exception]) -> None:
        class Broken(io.RawIOBase):
            def read(self, size: int = -1) -> bytes:
                raise error("invalid chunk size")

        message = self.send(Broken()).error(400, "invalid_payload")["message"]
        assert "chunks" in message
        assert "invalid" not in message

    def test_a_server_that_does_not_say_where_the_body_ends_is_not_waited_for(self) -> None:
        body = Endless()
        response = self.send(body, **{"wsgi.input_terminated": False})
        assert "Content-Length" in response.error(400, "invalid_payload")["message"]
        assert body.given == 0


@pytest.mark.requirement("PL-001", "PL-008")
def test_a_job_of_ten_mebibytes_passes_djangos_own_limits_at_their_defaults(settings: Any) -> None:
    assert settings.DATA_UPLOAD_MAX_MEMORY_SIZE == 2_621_440
    response = api.post("jobs", job(b'["%s"]' % (b"x" * (10 * MIB - 100))))
    assert len(api.info(response.ok(201)["job"]["id"])["args"][0]) == 10 * MIB - 100


@pytest.mark.requirement("PL-006")
def test_an_envelope_over_the_declared_maximum_is_413(settings: Any) -> None:
    settings.OJS = settings.OJS | {"MAX_ENVELOPE_BYTES": MIB}
    declared = api.get("/ojs/manifest").ok()["limits"]["max_envelope_bytes"]
    assert api.post("jobs", sized(declared)).status == 201
    response = api.post("jobs", sized(declared + 1))
    response.error(*TOO_LARGE, actual_bytes=declared + 1, max_bytes=declared, field="envelope")


def test_the_largest_body_is_a_setting(settings: Any) -> None:
    settings.OJS = settings.OJS | {"HTTP_MAX_BODY_BYTES": MIB, "MAX_ENVELOPE_BYTES": MIB}
    api.post("jobs", job(b'["%s"]' % (b"x" * MIB))).error(413, "PAYLOAD_TOO_LARGE", max_bytes=MIB)


@pytest.mark.requirement("PL-002")
def test_the_names_of_a_413_are_those_of_both_documents() -> None:
    details = api.post("jobs", job(more=b',"meta":{"x":"%s"}' % (b"x" * 70_000))).body["error"]
    assert details["type"] == "MetadataTooLarge"
    assert details["details"] == {
        "field": "meta",
        "actual_bytes": 70_008,
        "max_bytes": 65_536,
        "size_bytes": 70_008,
        "max_size_bytes": 65_536,
    }
