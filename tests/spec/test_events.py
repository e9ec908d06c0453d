"""The vocabulary of events, and their envelope (ojs-events §2, §3)."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest

from django_ojs.extensions.events import spec as events
from django_ojs.extensions.events.settings import KEPT_EVENTS
from django_ojs.spec import ids, published
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.published import EventType
from tests.cases import together
from tests.docs.pages import ROOT

KEY = UUID("019539a4-b68c-7def-8000-aabbccddeeff")
NOON = datetime(2025, 6, 1, 12, 0, 0, 789_999, tzinfo=UTC)


def rendered(type: str = "job.completed", **values: object) -> dict[str, object]:
    given = {"event_id": KEY, "time": NOON, "subject": "s", "data": {}, "service": "shop"}
    return events.render(type=type, **(given | values))  # type: ignore[arg-type]  # a table of values


def test_the_catalogue_has_the_names_of_the_documents() -> None:
    assert {type.value for type in EventType} == {
        *("job.enqueued", "job.started", "job.completed", "job.failed", "job.discarded"),
        *("job.retrying", "job.cancelled", "job.heartbeat", "job.scheduled", "job.expired"),
        *("job.progress", "job.checkpointed"),
        *("queue.paused", "queue.resumed"),
        *("queue.created", "queue.deleted", "queue.config_updated"),
        *("worker.started", "worker.stopped", "worker.quiet", "worker.heartbeat"),
        *("workflow.started", "workflow.step_completed"),
        *("workflow.completed", "workflow.failed"),
        # ojs-workflows, appendix B.
        *("workflow.created", "workflow.cancelled", "workflow.callback_fired"),
        *("workflow.step_failed", "workflow.job_completed", "workflow.job_failed"),
        *("cron.triggered", "cron.skipped"),
        *("backpressure.warning", "backpressure.rejected"),
        *("backpressure.dropped", "backpressure.cleared"),
        # rate-limiting §11.1.
        *("rate_limit.exceeded", "rate_limit.released", "rate_limit.dropped"),
        "rate_limit.dynamic_adjusted",
        # ojs-progress §11.1.
        "progress.stalled",
    }


@together(
    ("patterns", "found"),
    [
        (["*"], set(EventType)),
        (["cron.*"], {"cron.triggered", "cron.skipped"}),
        (["job.failed", "queue.paused"], {"job.failed", "queue.paused"}),
        (["job.fail"], set()),
        (["job.state_changed", "invoice.*"], set()),
        ([], set()),
    ],
)
def test_a_pattern_stands_for_the_types_that_it_matches(
    patterns: list[str], found: set[str]
) -> None:
    assert published.matching(patterns) == found


@together(
    "pattern",
    ["", "job", "job.", "*.failed", "job.*ed", "Job.failed", "job.failed\n", "job.a.b", 7],
)
def test_what_is_no_name_and_no_pattern_is_rejected(pattern: str) -> None:
    with pytest.raises(ValueError, match="an event type is a name"):
        published.matching(["job.*", pattern])


def test_what_ends_badly_is_kept_by_default_and_what_happens_all_the_time_is_not() -> None:
    kept = published.matching(KEPT_EVENTS)
    assert kept >= published.matching(["backpressure.*", "queue.*"])
    assert kept >= {"job.discarded", "job.expired", "worker.started", "worker.stopped"}
    assert not kept & {"job.enqueued", "job.started", "job.completed", "worker.heartbeat"}


@pytest.mark.requirement("EV-01", "EV-04")
def test_the_envelope_has_the_attributes_that_the_document_requires() -> None:
    assert rendered(data={"queue": "a"}) == {
        "specversion": "1.0",
        "id": "evt_019539a4-b68c-7def-8000-aabbccddeeff",
        "type": "job.completed",
        "source": "ojs://shop/api",
        "time": "2025-06-01T12:00:00.789Z",
        "subject": "s",
        "data": {"queue": "a"},
    }


@pytest.mark.requirement("EV-03")
@together(
    ("type", "data", "source"),
    [
        ("job.started", {"worker_id": "worker-1"}, "ojs://shop/workers/worker-1"),
        ("worker.stopped", {"worker_id": "a/b c"}, "ojs://shop/workers/a%2Fb%20c"),
        ("job.started", {"worker_id": ""}, "ojs://shop/api"),
        ("job.expired", {}, "ojs://shop/scheduler"),
        ("cron.skipped", {}, "ojs://shop/cron"),
        ("queue.paused", {}, "ojs://shop/api"),
    ],
)
def test_the_source_is_a_uri_that_says_who_it_was(
    type: str, data: dict[str, str], source: str
) -> None:
    assert rendered(type, data=data)["source"] == source


@pytest.mark.requirement("EV-S01")
def test_an_id_is_read_with_and_without_its_prefix_and_says_when_it_was_made() -> None:
    assert events.parse_event_id(f"evt_{KEY}", "after") == KEY
    assert events.parse_event_id(str(KEY), "after") == KEY
    before = datetime.now(UTC)
    made = events.made_at(ids.uuid7())
    assert abs((made - before).total_seconds()) < 20


@together("text", ["", "evt_", "evt_evt_x", "019539a4", f"job_{KEY}", "evt_\0"])
def test_what_is_no_event_id_is_rejected(text: str) -> None:
    with pytest.raises(InvalidRequest, match="after must be"):
        events.parse_event_id(text, "after")


@pytest.mark.requirement("EV-12")
def test_the_page_declares_at_least_once_delivery() -> None:
    page = (ROOT / "docs/reference/events.md").read_text()
    assert "Recorded events are delivered at least once" in page
