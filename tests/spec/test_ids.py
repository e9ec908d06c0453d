"""UUIDv7: form, order, threads and forks."""

from __future__ import annotations

import os
import threading
import time
import uuid
from typing import Any

import pytest

from django_ojs.spec import ids
from django_ojs.spec.errors import InvalidRequest
from tests.cases import together
from tests.forks import fork


def test_an_id_is_a_version_7_uuid_that_holds_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "_last", 0)
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_123_456_789)
    made = ids.uuid7()
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 == 1_700_000_000_123


def test_ids_ascend_singly_and_in_bulk() -> None:
    made = [ids.uuid7() for _ in range(2_000)] + ids.many(2_000) + [ids.uuid7()]
    assert made == sorted(set(made))
    assert {one.version for one in made} == {7}


def test_none_are_made_when_none_are_asked_for() -> None:
    assert ids.many(0) == []
    assert ids.many(-1) == []


def test_ids_ascend_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ids.uuid7()
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000)
    assert ids.uuid7() > first
    assert min(ids.many(10)) > first


def test_threads_never_share_an_id() -> None:
    made: list[uuid.UUID] = []

    def work() -> None:
        made.extend([ids.uuid7() for _ in range(500)] + ids.many(500))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 8_000


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_makes_ids_even_if_the_lock_was_held() -> None:
    reader, writer = os.pipe()
    with ids._lock:
        child = fork(
            lambda: os.write(writer, b"".join(one.bytes for one in [*ids.many(50), ids.uuid7()]))
        )
    parents = {one.bytes for one in ids.many(51)}
    os.waitpid(child, 0)
    data = os.read(reader, 16 * 51)
    os.close(reader)
    os.close(writer)
    children = {data[at : at + 16] for at in range(0, len(data), 16)}
    assert len(children) == 51
    assert not parents & children


GOOD = "019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e0f"


def test_a_uuid7_is_read_from_text_and_passed_through() -> None:
    assert ids.parse_id(GOOD) == uuid.UUID(GOOD)
    assert ids.parse_id(uuid.UUID(GOOD)) == uuid.UUID(GOOD)
    made = ids.uuid7()
    assert ids.parse_id(str(made)) == made


@together(
    "bad",
    [
        GOOD.upper(),
        GOOD.replace("-", ""),
        GOOD + "\n",
        f"{{{GOOD}}}",
        "019461a8-1a2b-4c3d-8e4f-5a6b7c8d9e0f",
        "019461a8-1a2b-7c3d-ce4f-5a6b7c8d9e0f",
        "",
        None,
        7,
        True,
        b"019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e0f",
        uuid.uuid4(),
        uuid.UUID(int=0),
    ],
)
def test_anything_else_is_rejected_without_repeating_it(bad: Any) -> None:
    with pytest.raises(
        InvalidRequest, match=r"^job_id must be a UUIDv7 in lowercase with hyphens(\n|$)"
    ):
        ids.parse_id(bad, "job_id")
