"""A job in a response: its fields, the fields that are left out, and their spelling."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django_ojs.spec import envelope
from tests.cases import together
from tests.spec.test_envelope import ID, parse

NOW = datetime(2026, 2, 12, 10, 30, 0, 123_456, tzinfo=UTC)


@dataclass(kw_only=True)
class Stored:
    id: UUID = field(default_factory=lambda: UUID(ID))
    type: str = "email.send"
    queue: str = "email"
    state: str = "available"
    priority: int = 5
    attempt: int = 0
    max_attempts: int = 3
    args: list[Any] = field(default_factory=lambda: [1])
    meta: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    created_at: datetime | None = NOW
    enqueued_at: datetime | None = NOW
    due_at: datetime | None = None
    expires_at: datetime | None = None
    activated_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    run: int = 0
    timeout_ms: int | None = None
    progress: Any = None
    result: Any = None
    error: Any = None
    discard_reason: str | None = None
    workflow_id: UUID | None = None
    original_queue: str | None = None


STAMP = "2026-02-12T10:30:00.123Z"


def test_a_plain_job_is_rendered_without_absent_fields() -> None:
    assert envelope.render(Stored()) == {
        "specversion": "1.0.0-rc.1", "id": ID, "type": "email.send", "queue": "email", "args": [1],
        "meta": {}, "state": "available", "attempt": 0, "max_attempts": 3, "priority": 5,
        "created_at": STAMP, "enqueued_at": STAMP,
    }  # fmt: skip


@together(
    ("fields", "present", "absent"),
    [
        ({"state": "completed", "finished_at": NOW}, {"completed_at"}, {"discarded_at"}),
        ({"state": "cancelled", "finished_at": NOW}, {"cancelled_at"}, {"completed_at"}),
        (
            {"state": "discarded", "finished_at": NOW, "discard_reason": "exhausted"},
            {"completed_at", "discarded_at"},
            set(),
        ),
        *[
            (
                {"state": "discarded", "finished_at": NOW, "discard_reason": reason},
                {"discarded_at"},
                {"completed_at"},
            )
            for reason in ("expired", "dropped", "operator")
        ],
        ({"state": "scheduled", "due_at": NOW}, {"scheduled_at"}, {"next_attempt_at"}),
        ({"state": "retryable", "due_at": NOW}, {"next_attempt_at"}, {"scheduled_at"}),
        ({"state": "available", "due_at": NOW}, set(), {"scheduled_at", "next_attempt_at"}),
        ({"activated_at": NOW, "started_at": NOW, "expires_at": NOW},
         {"activated_at", "started_at", "expires_at"}, {"completed_at"}),
    ],
)  # fmt: skip
def test_each_moment_is_rendered_where_it_exists(
    fields: dict[str, Any], present: set[str], absent: set[str]
) -> None:
    out = envelope.render(Stored(**fields))
    assert {name: out[name] for name in present} == dict.fromkeys(present, STAMP)
    assert not absent & set(out)


def test_timeouts_are_rendered_in_both_spellings_when_whole() -> None:
    assert envelope.render(Stored(timeout_ms=30_000))["timeout"] == 30
    out = envelope.render(Stored(timeout_ms=1_500))
    assert out["timeout_ms"] == 1_500
    assert "timeout" not in out


def test_what_the_client_sent_comes_back() -> None:
    parsed = parse(
        specversion="1.0", scheduled_at="2026-03-15T09:30:00+02:00", tags=["a"], x_new=[1]
    )
    out = envelope.render(Stored(options=envelope.options_of(parsed)))
    assert out["specversion"] == "1.0"
    assert out["scheduled_at"] == "2026-03-15T09:30:00+02:00"
    assert (out["tags"], out["x_new"]) == (["a"], [1])


def test_an_unknown_field_cannot_replace_a_known_one() -> None:
    out = envelope.render(Stored(options={"extra": {"state": "completed", "x": 1}}))
    assert (out["state"], out["x"]) == ("available", 1)


def test_errors_and_results_are_rendered_when_there_are_any() -> None:
    last = {"type": "T", "message": "m"}
    out = envelope.render(Stored(result=0, error=last), errors=[last, last])
    shown = {**last, "code": "T"}
    assert (out["result"], out["error"], out["errors"]) == (0, shown, [last, last])
    assert "errors" not in envelope.render(Stored(), errors=[])
