"""Queues that are created and configured, and the policy for those that are not."""

from __future__ import annotations

import pytest
from django.test import override_settings

from django_ojs.models import Queue
from django_ojs.operations import queues
from django_ojs.spec.errors import Conflict, InvalidQueue, InvalidRequest
from django_ojs.storage import queue_configs
from tests.cases import together
from tests.factories import active, push

pytestmark = pytest.mark.django_db


def test_a_queue_is_created_before_its_first_job() -> None:
    made = queues.create("a", {"max_size": 5, "colour": "blue"})
    assert (made.name, made.state, made.counts) == ("a", "active", {})
    assert made.config.backpressure.max_depth == 5
    assert made.config.values["colour"] == "blue"
    assert Queue.objects.get().config == {"backpressure": {"max_depth": 5}, "colour": "blue"}


def test_a_queue_that_exists_is_not_created_again() -> None:
    queues.create("a", {"max_envelope_bytes": 1})
    push(queue="b")
    for name in ("a", "b"):
        with pytest.raises(Conflict) as caught:
            queues.create(name, {"max_envelope_bytes": 2})
        assert caught.value.details == {"queue": name}
    assert queue_configs.config_of("a").max_envelope_bytes == 1


def test_a_deleted_queue_can_be_created_again_while_old_jobs_still_run() -> None:
    active(queue="a")
    queues.configure("a", {"max_envelope_bytes": 1})
    queues.delete("a", strategy="discard")
    assert queues.create("a").state == "active"
    assert queues.get("a").config.max_envelope_bytes is None


@together("name", ["_default", "*", "", "No", None, 5], undo=True)
def test_only_a_name_that_jobs_can_have_makes_a_queue(name: str) -> None:
    for operation in (queues.create, lambda name: queues.configure(name, {})):
        with pytest.raises(InvalidQueue):
            operation(name)
    assert not Queue.objects.exists()


@pytest.mark.requirement("QC-03")
def test_configuring_an_unknown_queue_creates_it_and_changes_go_by_top_level_key() -> None:
    queues.configure("a", {"backpressure": {"max_depth": 7}, "max_envelope_bytes": 3})
    changed = queues.configure(
        "a", {"backpressure": {"strategy": "block"}, "max_envelope_bytes": None}
    )
    assert (changed.config.backpressure.max_depth, changed.config.backpressure.strategy) == (
        None,
        "block",
    )
    assert changed.config.max_envelope_bytes is None


def test_a_change_that_is_rejected_changes_nothing() -> None:
    queues.configure("a", {"max_envelope_bytes": 3})
    with pytest.raises(InvalidRequest):
        queues.configure("a", {"max_envelope_bytes": 4, "retention": {"completed": "soon"}})
    assert queue_configs.config_of("a").max_envelope_bytes == 3


def test_a_queues_limit_does_not_exceed_the_servers() -> None:
    with override_settings(OJS={"MAX_ENVELOPE_BYTES": 2_000_000}):
        queues.configure("a", {"max_envelope_bytes": 2_000_000})
        with pytest.raises(InvalidRequest) as caught:
            queues.create("b", {"max_envelope_bytes": 2_000_001})
    assert caught.value.details["field"] == "config.max_envelope_bytes"


@pytest.mark.requirement("QC-S03")
def test_the_default_policy_holds_where_a_queue_says_nothing() -> None:
    assert queues.default_policy().values == {}
    queues.configure_default({"max_envelope_bytes": 10, "backpressure": {"max_depth": 100}})
    queues.configure("own", {"max_envelope_bytes": 2})
    assert queue_configs.config_of("never-seen").max_envelope_bytes == 10
    assert queue_configs.config_of("own").max_envelope_bytes == 2
    assert queues.get("own").config.backpressure.max_depth == 100
    queues.configure("own", {"max_envelope_bytes": None})
    assert queue_configs.config_of("own").max_envelope_bytes == 10
    assert queues.default_policy().values["max_envelope_bytes"] == 10


def test_configuring_leaves_a_paused_queue_paused() -> None:
    queues.pause("a")
    assert queues.configure("a", {"max_envelope_bytes": 1}).paused
