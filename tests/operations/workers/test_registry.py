"""Workers as operators see and direct them."""

from __future__ import annotations

import pytest

from django_ojs.models import Worker
from django_ojs.models.worker import Directive
from django_ojs.operations import ack, beat, fetch
from django_ojs.operations.workers import registry
from django_ojs.spec.errors import Conflict, NotFound
from django_ojs.spec.isolation import ISOLATED_AFTER
from django_ojs.storage.transitions import Claim
from tests.factories import WorkerFactory, active, hourly, jobs, push, read, silence

pytestmark = [pytest.mark.django_db, pytest.mark.requirement("ADM-006")]


def registered(name: str, *queues: str, **values: object) -> Worker:
    return WorkerFactory(id=name, queues=queues, **values)


def test_workers_are_listed_in_the_order_of_their_ids_with_their_conditions() -> None:
    for name in ("c", "a", "b", "d"):
        registered(name, "default")
    registry.direct("b", Directive.QUIET)
    registry.direct("d", Directive.TERMINATE)
    silence("c")
    found = registry.listing()
    conditions = [(one.worker.pk, one.condition) for one in found.workers]
    assert conditions == [("a", "running"), ("b", "quiet"), ("c", "stale"), ("d", "terminate")]
    assert (found.total, found.running, found.quiet, found.stale) == (4, 1, 2, 1)


def test_a_worker_that_says_it_is_quiet_is_quiet() -> None:
    registered("w", state=Directive.QUIET)
    assert registry.get("w").condition == "quiet"


def test_whoever_is_kept_to_queues_sees_the_workers_of_these() -> None:
    registered("mine", "email", "other")
    registered("theirs", "other")
    within = frozenset({"email"})
    assert [one.worker.pk for one in registry.listing(within=within).workers] == ["mine"]
    assert registry.get("mine", within=within).worker.pk == "mine"
    with pytest.raises(NotFound):
        registry.get("theirs", within=within)


def test_the_jobs_in_its_hands_are_shown_without_their_arguments() -> None:
    mine = active("w", queue="email", args=["secret"])
    active("v")
    (job,) = registry.jobs_of("w")
    assert job.pk == mine.id
    assert "args" in job.get_deferred_fields()
    assert registry.jobs_of("w", within=frozenset({"other"})) == []


@pytest.mark.requirement("ADM-R003")
@pytest.mark.parametrize("directive", [Directive.QUIET, Directive.TERMINATE])
def test_a_directive_comes_with_the_next_beat(directive: Directive) -> None:
    registered("w")
    job = push()
    assert registry.direct("w", directive).condition == directive
    assert fetch.fetch([job.queue], worker_id="w") == []
    assert beat.beat("w").state == directive


def test_a_quiet_worker_can_be_resumed_and_a_terminating_one_cannot() -> None:
    registered("w")
    registry.direct("w", Directive.QUIET)
    assert registry.direct("w", Directive.RUNNING).condition == "running"
    registry.direct("w", Directive.TERMINATE)
    for directive in (Directive.RUNNING, Directive.QUIET):
        with pytest.raises(Conflict, match="terminate"):
            registry.direct("w", directive)
    assert beat.beat("w").state == Directive.TERMINATE


@pytest.mark.parametrize("name", ["nobody", "", "x" * 300, "nul\0", "\ud800"])
def test_a_worker_nobody_knows_is_not_found(name: str) -> None:
    with pytest.raises(NotFound):
        registry.get(name)
    with pytest.raises(NotFound):
        registry.direct(name, Directive.QUIET)
    with pytest.raises(NotFound):
        registry.deregister(name)


def test_a_stale_worker_is_forgotten_and_its_jobs_go_back() -> None:
    registered("w")
    again, spent = active("w"), active("w", retry=hourly(1))
    # Lost beside others before, so that each loss spends an attempt.
    jobs().update(lost_with_others=ISOLATED_AFTER)
    silence("w")
    assert registry.deregister("w") == 2
    assert not Worker.objects.filter(pk="w").exists()
    assert (read(again.id).state, read(spent.id).state) == ("available", "discarded")
    with pytest.raises(Conflict):
        ack.ack(again.id, claim=Claim(worker_id="w"))
