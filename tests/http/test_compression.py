"""Compressed requests and responses: accepted and rejected codings, and a bomb without effect."""

from __future__ import annotations

import gzip
import json
import sys
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client, RequestFactory

from django_ojs.http import compression, parsers
from django_ojs.http.responses import MEDIA_TYPE
from django_ojs.http.zstd import zstd
from django_ojs.spec.errors import InvalidPayload
from tests import packed_zstd
from tests.cases import together
from tests.http.api import Api, ApiResponse, stored

pytestmark = [pytest.mark.django_db, pytest.mark.once]

api = Api()
MIB = 2**20
JOB = {"type": "test.job", "args": ["ä" * 50, {"__ojs_ref": "s3://bucket/key", "size": 1}]}
BODY = json.dumps(JOB).encode()

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": packed_zstd.compress,
}
codings = pytest.mark.parametrize("coding", PACK)


def push(body: bytes, coding: str) -> ApiResponse:
    return api.post("jobs", body, headers={"Content-Encoding": coding})


@pytest.fixture
def without_zstd(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("compression.zstd", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)
    zstd.cache_clear()
    yield
    zstd.cache_clear()


def zeros(size: int, coding: str) -> bytes:
    """Pack a document with that many zeros in it, piece by piece: the test needs no memory."""
    packer: Any = zlib.compressobj(9, wbits=31) if coding == "gzip" else None
    if packer is None:
        packer = packed_zstd.compressor()
    packed = [packer.compress(b'{"type":"test.job","args":["')]
    packed += [packer.compress(b"0" * MIB) for _ in range(size // MIB)]
    return b"".join([*packed, packer.compress(b'"]}'), packer.flush()])


class TestRequests:
    @pytest.mark.requirement("PL-009")
    @pytest.mark.requirement("PL-007")
    @codings
    def test_a_packed_job_is_stored_as_if_it_had_come_plain(self, coding: str) -> None:
        job = push(PACK[coding](BODY), coding).ok(201)["job"]
        assert job["args"] == JOB["args"]

    def test_the_name_of_the_coding_has_no_case(self) -> None:
        push(PACK["gzip"](BODY), " GZip ").ok(201)

    @pytest.mark.parametrize("coding", ["identity", "IDENTITY", " identity ", ""])
    def test_a_plain_body_may_say_so(self, coding: str) -> None:
        push(BODY, coding).ok(201)

    @codings
    def test_several_members_are_one_body(self, coding: str) -> None:
        push(PACK[coding](BODY[:20]) + PACK[coding](BODY[20:]), coding).ok(201)

    @codings
    def test_a_body_of_countless_parts_is_rejected(self, coding: str) -> None:
        packed = PACK[coding](b"") * 2_000 + PACK[coding](BODY)
        error = push(packed, coding).error(400, "invalid_payload")
        assert "1000 compressed parts" in error["message"]

    @codings
    @pytest.mark.parametrize("missing", [1, 5, 20])
    def test_a_body_that_ends_in_the_middle_is_rejected(self, coding: str, missing: int) -> None:
        push(PACK[coding](BODY)[:-missing], coding).error(400, "invalid_payload")
        assert stored() == 0

    @codings
    @pytest.mark.parametrize("body", [BODY, b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\0" * 100])
    def test_what_is_not_the_coding_it_says_is_rejected(self, coding: str, body: bytes) -> None:
        push(body, coding).error(400, "invalid_payload")

    def test_bytes_changed_on_the_way_are_noticed(self) -> None:
        packed = bytearray(PACK["gzip"](BODY))
        packed[-6] ^= 1
        push(bytes(packed), "gzip").error(400, "invalid_payload")

    def test_what_is_wrong_with_the_bits_after_the_last_byte_is_noticed(self) -> None:
        """Made by hand: 64 KiB are full with the last byte, in which an invalid match begins."""
        head = bytes.fromhex("1f8b08000000000000ff edc0010900000080a0adfd3fd1110d")
        push(head + bytes(63) + b"\xf0", "gzip").error(400, "invalid_payload")

    @codings
    def test_what_follows_the_packed_body_is_rejected(self, coding: str) -> None:
        push(PACK[coding](BODY) + b"{}", coding).error(400, "invalid_payload")

    @together(
        "coding",
        [
            *("br", "deflate", "compress", "x-gzip", "gzip, gzip", "gzip, zstd", "identity, gzip"),
            *("identity, br", "x" * 999, "é"),
        ],
        undo=True,
    )
    def test_any_other_coding_and_a_stack_of_them_is_415(self, coding: str) -> None:
        response = push(gzip.compress(gzip.compress(BODY)), coding)
        error = response.error(415, "UNSUPPORTED_COMPRESSION", supported=["gzip", "zstd"])
        assert error["type"] == "UnsupportedCompression"
        assert response.headers["Accept-Encoding"] == "gzip, zstd"

    def test_packed_twice_under_one_name_is_not_json(self) -> None:
        push(gzip.compress(gzip.compress(BODY)), "gzip").error(400, "invalid_payload")

    @pytest.mark.usefixtures("without_zstd")
    def test_without_the_library_zstd_is_neither_read_nor_offered(self) -> None:
        push(PACK["zstd"](BODY), "zstd").error(415, "UNSUPPORTED_COMPRESSION", supported=["gzip"])
        manifest = api.get("/ojs/manifest", headers={"Accept-Encoding": "zstd"})
        assert "Content-Encoding" not in manifest.headers
        limits = manifest.ok()["extensions"]["payload_limits"]
        assert limits["supported_compression"] == ["gzip"]

    def test_a_content_length_that_promises_more_is_noticed(self) -> None:
        packed = PACK["gzip"](BODY)
        request = RequestFactory().post(
            "/", packed, MEDIA_TYPE, headers={"Content-Encoding": "gzip"}
        )
        request.META["CONTENT_LENGTH"] = str(len(packed) + 9)
        with pytest.raises(InvalidPayload, match="Content-Length"):
            parsers.read_object(request, required=True)

    @codings
    def test_actions_that_need_no_body_take_an_empty_one(self, coding: str) -> None:
        api.post("queues/q/pause", b"", headers={"Content-Encoding": coding}).ok()


class TestSizes:
    @pytest.mark.requirement("PL-010")
    @codings
    def test_the_limits_are_of_what_was_unpacked(self, coding: str) -> None:
        meta = {"meta": {"x": "x" * 66_000}}
        packed = PACK[coding](json.dumps(JOB | meta).encode())
        assert len(packed) < 1_000
        push(packed, coding).error(413, "METADATA_TOO_LARGE")
        large = zeros(11 * MIB, coding)
        push(large, coding).error(413, "PAYLOAD_TOO_LARGE", field="envelope")
        push(zeros(9 * MIB, coding), coding).ok(201)

    @pytest.mark.requirement("PL-010")
    @codings
    def test_a_body_over_the_limit_for_bodies_is_rejected(self, coding: str, settings: Any) -> None:
        settings.OJS = settings.OJS | {"HTTP_MAX_BODY_BYTES": MIB}
        response = push(zeros(2 * MIB, coding), coding)
        response.error(413, "PAYLOAD_TOO_LARGE", field="body", max_bytes=MIB)

    @pytest.mark.parametrize(("coding", "ratio"), [("gzip", 1_000), ("zstd", 30_000)])
    def test_a_bomb_is_unpacked_to_the_limit_and_no_further(self, coding: str, ratio: int) -> None:
        size = 128 * MIB
        bomb = zeros(size, coding)
        assert size / len(bomb) > ratio
        asked: list[int] = []

        def read(count: int) -> bytes:
            start = sum(asked)
            asked.append(len(bomb[start : start + count]))
            return bomb[start : start + count]

        tracemalloc.start()
        try:
            unpacked = compression.decompress(coding, read, 16 * MIB)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert 16 * MIB < len(unpacked) <= 25 * MIB
        # The buffer grows by parts and is copied once; what is left of the bomb is not there.
        assert peak < 80 * MIB
        push(bomb, coding).error(413, "PAYLOAD_TOO_LARGE", field="body")

    def test_a_window_that_takes_too_much_memory_is_rejected(self) -> None:
        packer = packed_zstd.compressor(window_log=27)
        packed = packer.compress(BODY) + packer.flush()
        assert "8 MiB" in push(packed, "zstd").error(400, "invalid_payload")["message"]


def ask(accept: str | None, **headers: str) -> Any:
    if accept is not None:
        headers["Accept-Encoding"] = accept
    # Not framed: the content is packed.
    return Client().get("/ojs/manifest", headers=headers)


UNPACK: dict[str | None, Callable[[bytes], bytes]] = {
    None: bytes,
    "gzip": gzip.decompress,
    "zstd": packed_zstd.decompress,
}


class TestResponses:
    @together(
        ("accept", "coding"),
        [
            (None, None),
            ("", None),
            ("identity", None),
            ("br, deflate", None),
            ("gzip", "gzip"),
            ("GZIP", "gzip"),
            ("zstd", "zstd"),
            ("*", "zstd"),
            ("gzip, deflate, br, zstd", "zstd"),
            ("gzip;q=1.0, zstd;q=0.5", "gzip"),
            ("gzip;q=0", None),
            ("gzip;q=0, *", "zstd"),
            ("gzip;q=0, *;q=0", None),
            ("gzip;q=lots", None),
            (",;,=,q=1", None),
        ],
        undo=True,
    )
    def test_a_long_response_is_compressed_as_the_client_prefers(
        self, accept: str | None, coding: str | None
    ) -> None:
        response = ask(accept)
        assert response.get("Content-Encoding") == coding
        assert "Accept-Encoding" in response["Vary"]
        assert json.loads(UNPACK[coding](response.content)) == ask(None).json()
        if coding is not None:
            assert len(response.content) < len(ask(None).content)
            assert response["Content-Length"] == str(len(response.content))

    def test_a_short_response_is_not_compressed(self) -> None:
        job = api.push()
        response = Client().get(f"/ojs/v1/jobs/{job['id']}", headers={"Accept-Encoding": "gzip"})
        assert len(response.content) < compression.MINIMUM
        assert "Content-Encoding" not in response
        assert "Accept-Encoding" in response["Vary"]

    def test_a_large_job_comes_packed(self) -> None:
        job = api.push(args=["x" * 5_000])
        response = Client().get(f"/ojs/v1/jobs/{job['id']}", headers={"Accept-Encoding": "zstd"})
        assert len(response.content) < 1_000
        assert json.loads(packed_zstd.decompress(response.content))["job"]["args"] == job["args"]

    def test_the_length_of_a_response_for_a_browser_is_padded(self) -> None:
        lengths = {len(ask("gzip, zstd", Cookie="sessionid=x").content) for _ in range(40)}
        assert len(lengths) > 1
        assert ask("gzip, zstd", Cookie="sessionid=x")["Content-Encoding"] == "gzip"
