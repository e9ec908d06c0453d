"""What a handler gets: values, streams, files; and that all of it is let go of."""

from __future__ import annotations

import gc
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

import django_ojs as ojs
from django_ojs.extensions.payloads.parameter_kinds import ParameterKind, ParameterKinds
from django_ojs.extensions.payloads.reader import Budget, Reader
from django_ojs.extensions.payloads.reference import KEY, Reference
from django_ojs.spec.errors import ChecksumMismatch, PayloadRejected, PayloadUnavailable
from tests.payloads.resolving import checksum, resolved

DATA = os.urandom(700_000)


@pytest.fixture
def root(tmp_path: Path, settings: Any) -> Path:
    (tmp_path / "data.bin").write_bytes(DATA)
    (tmp_path / "list.json").write_text("[1, 2]")
    settings.OJS = settings.OJS | {"PAYLOAD_FILE_ROOTS": [str(tmp_path)], "PAYLOAD_FILES": True}
    return tmp_path


def reference(path: Path, **fields: Any) -> dict[str, Any]:
    return {KEY: f"file://{path}"} | fields


def test_references_are_replaced_in_their_places_and_the_rest_is_left(root: Path) -> None:
    nested = {"deeper": reference(root / "list.json")}
    given = [1, reference(root / "list.json"), nested, None]
    with resolved(*given) as found:
        assert found.args == [1, [1, 2], nested, None]
    assert given[1] == reference(root / "list.json")


def test_nothing_is_resolved_when_no_setting_says_so() -> None:
    for uri, setting in {
        "s3://b/k": "PAYLOAD_S3_BUCKETS",
        "gs://b/k": "PAYLOAD_GS_BUCKETS",
        "https://h/x": "PAYLOAD_HTTPS_HOSTS",
        "file:///x": "PAYLOAD_FILES",
    }.items():
        with pytest.raises(PayloadRejected, match=setting) as caught:
            resolved({KEY: uri})
        assert "args[0]" in caught.value.message
        assert caught.value.ojs_retryable is False


def test_a_file_is_complete_and_gone_with_the_run(root: Path) -> None:
    given = reference(root / "data.bin", checksum=checksum(DATA), size=len(DATA))
    with resolved(given, as_=ojs.PayloadFile) as found:
        (file,) = found.args
        assert isinstance(file, ojs.PayloadFile)
        assert Path(file).read_bytes() == DATA
        with file.open() as opened:
            assert opened.read(10) == DATA[:10]
        assert file.size == len(DATA)
        assert file.path == os.fspath(file)
        assert os.stat(file).st_mode & 0o077 == 0
    assert not os.path.exists(file.path)


def test_a_file_that_is_not_what_was_meant_is_removed(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with pytest.raises(ChecksumMismatch):
        resolved(reference(root / "data.bin", checksum=checksum(b"")), as_=ojs.PayloadFile)
    assert list(folder.iterdir()) == []


@pytest.mark.requirement("PL-013")
def test_a_stream_with_a_checksum_is_verified_before_the_handler_is_called(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with pytest.raises(ChecksumMismatch):
        resolved(reference(root / "data.bin", checksum=checksum(b"")), as_=ojs.PayloadStream)
    given = reference(root / "data.bin", checksum=checksum(DATA))
    with resolved(given, as_=ojs.PayloadStream) as found:
        (stream,) = found.args
        assert type(stream) is ojs.PayloadStream
        assert (stream.read(10), stream.seek(0), stream.read()) == (DATA[:10], 0, DATA)
        found.finish()
    assert stream.closed
    assert list(folder.iterdir()) == []


def test_a_stream_without_a_checksum_is_read_while_it_is_received(root: Path) -> None:
    with resolved(reference(root / "data.bin"), as_=ojs.PayloadStream) as found:
        assert found.args[0].read(10) == DATA[:10]
        assert found.args[0].source.bytes_read < len(DATA)


def test_an_unverified_stream_is_read_while_it_is_received(root: Path) -> None:
    given = reference(root / "data.bin", checksum=checksum(DATA))
    with resolved(given, as_=ojs.UnverifiedPayloadStream) as found:
        (stream,) = found.args
        assert isinstance(stream, ojs.UnverifiedPayloadStream)
        assert stream.read(10) == DATA[:10]
        assert stream.source.bytes_read < len(DATA)
        assert stream.read() == DATA[10:]
        found.finish()
    assert stream.closed


def test_a_stream_can_be_read_as_text_by_line(root: Path) -> None:
    (root / "table.csv").write_text("a,b\n1,2\n")
    with resolved(reference(root / "table.csv"), as_=ojs.UnverifiedPayloadStream) as found:
        assert list(io.TextIOWrapper(found.args[0])) == ["a,b\n", "1,2\n"]


@pytest.mark.requirement("PL-013")
@pytest.mark.parametrize("read", [0, 10, -1])
def test_a_stream_that_is_not_what_was_meant_fails_however_much_was_read(
    root: Path, read: int
) -> None:
    given = reference(root / "data.bin", checksum=checksum(b""))
    with resolved(given, as_=ojs.UnverifiedPayloadStream) as found:
        (stream,) = found.args
        if read < 0:
            with pytest.raises(ChecksumMismatch):
                stream.read()
        else:
            stream.read(read)
        with pytest.raises(ChecksumMismatch):
            found.finish()


def test_a_stream_that_was_closed_early_has_its_checksum_verified(root: Path) -> None:
    given = reference(root / "data.bin", checksum=checksum(b""))
    with resolved(given, as_=ojs.UnverifiedPayloadStream) as found:
        wrapper = io.TextIOWrapper(found.args[0], "latin-1")
        wrapper.read(1)
        with pytest.raises(ChecksumMismatch):
            wrapper.close()
        with pytest.raises(ChecksumMismatch):
            found.finish()


def test_what_is_left_of_a_stream_is_not_read_when_the_handler_has_failed(root: Path) -> None:
    given = reference(root / "data.bin", checksum=checksum(b""))
    with resolved(given, as_=ojs.UnverifiedPayloadStream) as found:
        found.args[0].read(1)
    assert found.args[0].source.bytes_read < len(DATA)


def test_a_stream_that_nobody_has_any_more_is_let_go_of_unread(root: Path) -> None:
    given = reference(root / "data.bin", checksum=checksum(b""))
    found = resolved(given, as_=ojs.UnverifiedPayloadStream)
    reader = found.args[0].source
    del found
    gc.collect()
    assert reader.closed
    assert reader.bytes_read == 0


@pytest.mark.parametrize("kind", [ojs.PayloadFile, ojs.PayloadStream])
def test_a_small_argument_comes_the_same_way_as_a_large_one(kind: Any) -> None:
    with resolved({"small": "ä"}, as_=kind) as found:
        (given,) = found.args
        with given.open() if kind is ojs.PayloadFile else given as opened:
            assert json.loads(opened.read()) == {"small": "ä"}


def test_files_may_be_larger_than_values(root: Path, settings: Any) -> None:
    settings.OJS = settings.OJS | {"PAYLOAD_MAX_BYTES": 4, "PAYLOAD_MAX_FILE_BYTES": len(DATA)}
    for kind in (ojs.PayloadFile, ojs.PayloadStream):
        with resolved(reference(root / "data.bin"), as_=kind) as found:
            found.finish()
    with pytest.raises(PayloadRejected, match="at most 4 bytes"):
        resolved(reference(root / "list.json"))
    settings.OJS = settings.OJS | {"PAYLOAD_MAX_FILE_BYTES": len(DATA) - 1}
    with pytest.raises(PayloadRejected, match="at most"):
        resolved(reference(root / "data.bin"), as_=ojs.PayloadFile)


def test_when_one_reference_fails_the_others_are_let_go_of(root: Path) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(PayloadUnavailable):
        resolved(reference(root / "data.bin"), reference(root / "none"), as_=ojs.PayloadStream)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_annotation_decides_also_as_a_string_and_for_the_rest() -> None:
    def handler(
        a: ojs.UnverifiedPayloadStream, b: ojs.PayloadFile, *rest: ojs.PayloadStream
    ) -> None:
        """Take three kinds."""

    import inspect

    found = ParameterKinds(inspect.signature(handler).parameters.values())
    assert [found.at(i) for i in range(4)] == [
        ParameterKind.UNVERIFIED_STREAM,
        ParameterKind.FILE,
        ParameterKind.STREAM,
        ParameterKind.STREAM,
    ]
    assert not found.all_values


class Slow:
    """A source that takes a second for each byte of ten."""

    def __init__(self, clock: list[float]) -> None:
        self.clock = clock

    def read(self, size: int, /) -> bytes:
        self.clock[0] += 1
        return b"x"

    def close(self) -> None:
        """Do nothing."""


def test_only_the_time_that_was_waited_counts() -> None:
    clock = [0.0]
    budget = Budget(5, lambda: clock[0])
    reader = Reader(Slow(clock), Reference(uri=""), field="args[0]", max_bytes=100, budget=budget)
    for _ in range(4):
        assert reader.read_chunk(1) == b"x"
        clock[0] += 1_000  # The handler thinks.
    with pytest.raises(PayloadUnavailable, match="PAYLOAD_TIMEOUT"):
        reader.read_chunk(1)
    with pytest.raises(PayloadUnavailable):
        reader.finish()
