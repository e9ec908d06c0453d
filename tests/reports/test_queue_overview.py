"""The queues as an operator looks at them, and what is wrong with them."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_ojs.extensions.backpressure.fullness import fullness
from django_ojs.extensions.backpressure.operations.episodes import NONE, Episode
from django_ojs.operations import queues
from django_ojs.operations.maintenance.mode import MaintenanceStatus
from django_ojs.operations.queues import QueueState, QueueStatus
from django_ojs.reports import findings, health_queries, queue_overview
from django_ojs.reports.health_queries import Observations
from django_ojs.reports.queue_overview import Flow, Level, Listeners, OverviewRow
from django_ojs.spec.queue_config import Backpressure, QueueConfig
from django_ojs.spec.states import State
from django_ojs.storage.figures import oldest_available
from tests import factories
from tests.cases import together

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def row(
    available: int = 0,
    *,
    came: int = 0,
    went: int = 0,
    paused: bool = False,
    listening: int | None = 1,
    size: int | None = None,
    rejected: int = 0,
    dropped: int = 0,
    oldest: datetime | None = None,
    episode: Episode = NONE,
    **bound: Any,
) -> OverviewRow:
    status = QueueStatus(
        name="alpha",
        state=QueueState.PAUSED if paused else QueueState.ACTIVE,
        created_at=NOW,
        updated_at=NOW,
        paused_at=NOW if paused else None,
        counts={State.AVAILABLE: available},
        config=QueueConfig(backpressure=(config := Backpressure(**bound))),
    )
    flow = Flow(
        came=[came] * 60, went=[went] * 60, rejected=[rejected] * 60, dropped=[dropped] * 60
    )
    return OverviewRow(
        status=status,
        flow=flow,
        listening=listening,
        oldest=oldest,
        fullness=fullness(available, size, config, episode) if bound else None,
    )


@together(
    ("found", "pressure", "level"),
    [
        (row(79, max_depth=100), 0.79, Level.GOOD),
        (row(80, max_depth=100), 0.8, Level.FAIR),
        (row(100, max_depth=100), 1.0, Level.BAD),
        (row(60, max_depth=100, warning_threshold=0.5), 0.6, Level.FAIR),
        (row(1, max_depth=100, size=1000, max_size_bytes=1000), 1.0, Level.BAD),
        (row(10**6), None, Level.GOOD),
    ],
)
def test_pressure_is_depth_by_the_nearer_bound(
    found: OverviewRow, pressure: float | None, level: Level
) -> None:
    assert found.pressure == pressure
    assert (found.fullness.level if found.fullness else Level.GOOD) is level


@together(
    ("found", "unworked"),
    [
        (row(3, listening=0), True),
        (row(3, listening=1), False),
        (row(3, listening=0, paused=True), False),
        # Jobs ended a minute ago, and the worker has stopped since.
        (row(3, listening=0, went=5), True),
        (row(0, listening=0), False),
        (row(3, listening=None), False),
    ],
)
def test_a_queue_with_jobs_and_without_a_worker_is_unworked(
    found: OverviewRow, unworked: bool
) -> None:
    assert found.unworked is unworked


_OBSERVED = {each.name for each in fields(Observations)}


def kinds(*rows: OverviewRow, **values: Any) -> list[str]:
    usual: dict[str, Any] = {
        "maintenance": MaintenanceStatus(enabled=False),
        "listening": Listeners(running=1, maintaining=1),
        "transaction": None,
    }
    observed = Observations(**{name: values.pop(name) for name in _OBSERVED & values.keys()})
    return [finding.kind for finding in findings.of_system(rows, observed, **(usual | values))]


def test_a_healthy_site_has_no_findings() -> None:
    assert kinds(row(5, went=5, max_depth=100)) == []


def test_the_worst_comes_first() -> None:
    found = kinds(
        row(80, max_depth=100),
        row(100, max_depth=100),
        row(3, listening=0),
        row(3, paused=True),
        maintenance=MaintenanceStatus(enabled=True, enabled_at=NOW),
        listening=Listeners(running=1, maintaining=1, stale=2),
        fresh_dead=5,
        transaction=timedelta(minutes=20),
    )
    # Of those that are equally severe, the one that hurts most jobs.
    assert found[:4] == ["maintenance", "queue_unworked", "worker_stale", "queue_full"]
    assert sorted(found[4:]) == [
        *("dead_letters", "queue_nearly_full", "queue_paused", "transaction")
    ]


def test_a_short_transaction_is_no_finding_and_a_long_one_is_bad() -> None:
    assert kinds(transaction=timedelta(minutes=14)) == []
    (finding,) = findings.of_system(
        [], Observations(), maintenance=None, listening=None, transaction=timedelta(hours=2)
    )
    assert finding.is_critical


@pytest.mark.django_db
def test_the_oldest_job_is_found_whatever_its_priority() -> None:
    young, old, other = (factories.push(queue="alpha", priority=p).pk for p in (5, 0, -5))
    for job_id, minutes in ((young, 1), (old, 9), (other, 4)):
        factories.age(job_id, timedelta(minutes=minutes))
    beta = factories.push(queue="beta")
    factories.in_state("scheduled", queue="gamma")
    pairs = (("alpha", old), ("beta", beta.pk))
    found = oldest_available.oldest(["alpha", "beta", "gamma"])
    assert found == {name: factories.read(pk).enqueued_at for name, pk in pairs}
    assert oldest_available.oldest([]) == {}


@pytest.mark.django_db
def test_running_workers_listen_and_quiet_and_silent_ones_do_not() -> None:
    for name in ("one", "quiet", "silent"):
        factories.WorkerFactory(id=name, queues=("alpha", "alpha", "beta"))
    factories.WorkerFactory(id="quiet", state="quiet")
    factories.silence("silent")
    found = queue_overview.listeners()
    assert found.by_queue == {"alpha": 1, "beta": 1}
    assert (found.total, found.stale) == (3, 1)


@pytest.mark.django_db
def test_a_board_has_the_fullest_queue_first_and_the_deepest_next() -> None:
    queues.configure("small", {"max_size": 2})
    factories.push(queue="small")
    for name, number in (("deep", 3), ("shallow", 1)):
        factories.push_many(number, queue=name)
    found = queue_overview.overview(queues.listing().rows, flows={}, oldest={}, listens={"deep": 2})
    assert [each.name for each in found] == ["small", "deep", "shallow"]
    assert [each.listening for each in found] == [0, 2, 0]


@pytest.mark.django_db
def test_new_dead_letters_are_those_of_the_last_hour() -> None:
    factories.in_state("discarded")
    old = factories.in_state("discarded")
    factories.age(old.pk, timedelta(hours=2))
    assert health_queries.new_dead_letters() == 1
