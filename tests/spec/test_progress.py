"""What a run says of its progress, what is kept of it, and what shows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from django_ojs.spec.errors import InvalidRequest, PayloadTooLarge
from django_ojs.spec.progress import MAX_BYTES, Progress, Report, after, shown
from tests.cases import together

NOW = datetime(2026, 2, 15, 21, 45, 30, tzinfo=UTC)
STAMP = "2026-02-15T21:45:30.000Z"


def kept(stored: Any = None, run: int = 1, **reported: Any) -> Any:
    return after(stored, Report(**reported), run=run, now=NOW)


def seen(stored: Any, run: int = 1, attempt: int = 1, state: str = "active") -> Progress:
    return shown(stored, run=run, attempt=attempt, state=state)


@together(
    ("given", "share"), [(-3, 0.0), (0, 0.0), (0.47, 0.47), (1, 1.0), (1.3, 1.0), (1e300, 1.0)]
)
def test_a_share_outside_its_range_counts_as_the_nearer_end(given: float, share: float) -> None:
    assert Report.parse({"progress": given}).progress == share


@together(
    ("body", "field"),
    [
        ({}, "progress"),
        ({"checkpoint": {"a": 1}}, "progress"),
        ({"progress": "0.5"}, "progress"),
        ({"progress": True}, "progress"),
        ({"progress": float("nan")}, "progress"),
        ({"data": [1]}, "data"),
        ({"progress": 0.5, "checkpoint": "here"}, "checkpoint"),
    ],
)
def test_what_is_no_report_is_rejected_by_name(body: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Report.parse(body)
    assert caught.value.details["field"] == field
    assert field in caught.value.message


def test_what_json_cannot_carry_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match=r"data\.when"):
        Report(data={"when": NOW})


def test_a_report_is_no_place_for_a_document() -> None:
    Report(data={"a": "x" * (MAX_BYTES - 40)})
    with pytest.raises(PayloadTooLarge) as caught:
        Report(data={"a": "x" * (MAX_BYTES // 2)}, checkpoint={"a": "x" * (MAX_BYTES // 2)})
    assert caught.value.details["max_bytes"] == MAX_BYTES


def test_a_share_never_goes_back_within_a_run_and_the_details_follow() -> None:
    first = kept(progress=0.6, data={"row": 60})
    assert seen(first) == Progress(progress=0.6, data={"row": 60}, updated_at=STAMP)
    then = kept(first, progress=0.2, data={"row": 20})
    assert (seen(then).progress, seen(then).data) == (0.6, {"row": 20})
    assert seen(kept(then, data={})).data == {}
    assert seen(kept(then, progress=0.9)).data == {"row": 20}


def test_another_run_begins_anew() -> None:
    first = kept(progress=0.6, data={"row": 60}, checkpoint={"at": 60})
    assert seen(first, run=2) == Progress(progress=None, data=None, updated_at=None)
    then = kept(first, run=2, progress=0.1)
    assert seen(then, run=2) == Progress(progress=0.1, updated_at=STAMP)
    assert "checkpoint" not in then


def test_a_completed_job_that_reported_is_done_and_a_failed_one_stays_where_it_was() -> None:
    stored = kept(progress=0.87)
    assert seen(stored, state="completed").progress == 1.0
    assert seen(kept(data={"a": 1}), state="completed").progress == 1.0
    assert seen(None, state="completed").progress is None
    for state in ("retryable", "discarded", "cancelled"):
        assert seen(stored, state=state).progress == 0.87


def test_a_job_that_was_retried_by_hand_shows_no_progress_before_it_runs() -> None:
    assert seen(kept(progress=0.5), attempt=0, state="available") == Progress()


def test_nothing_was_reported() -> None:
    assert seen(None) == seen({}) == Progress()
