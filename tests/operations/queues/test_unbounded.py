"""Queues without a bound are named once, unless that is configured (backpressure §6.3)."""

from __future__ import annotations

import ast
import re
from typing import Any
from unittest import mock

import pytest
from django.core.management import call_command
from django.db import DatabaseError

import django_ojs as ojs
from django_ojs import checks
from django_ojs.extensions.backpressure import storage as bounds
from django_ojs.extensions.backpressure.models import Bound
from django_ojs.operations import queues
from django_ojs.operations.queues.unbounded import BOUND_HINT, message, unbounded
from django_ojs.spec.errors import QueueFull
from django_ojs.storage import in_memory_state
from tests.factories import push

pytestmark = pytest.mark.django_db(transaction=True)


def test_known_and_worked_queues_without_a_bound_are_named() -> None:
    push(queue="busy")
    queues.configure("bounded", {"backpressure": {"max_depth": 5}})
    queues.configure("by-size", {"max_size_bytes": 500})
    queues.configure("meant", {"backpressure": {"max_depth": 0}})
    queues.pause("paused")
    assert unbounded(["worked", "busy", "bounded"]) == ["busy", "paused", "worked"]


def test_a_default_policy_with_a_bound_holds_for_all() -> None:
    push(queue="busy")
    queues.configure_default({"backpressure": {"max_depth": 100_000}})
    assert unbounded(["worked"]) == []


def test_the_settings_count(settings: Any) -> None:
    settings.OJS = {"QUEUES": {"a": {"backpressure": {"max_depth": 3}}}}
    assert unbounded(["a", "b"]) == ["b"]


def test_the_hint_can_be_copied_into_the_settings(settings: Any) -> None:
    push(queue="busy")
    (found,) = re.findall(r"OJS = (\{.*?\}{4})", BOUND_HINT)
    settings.OJS = ast.literal_eval(found)
    assert unbounded(["worked"]) == []
    assert checks.check_bounds(databases=["default"]) == []


def test_a_default_bound_of_the_settings_holds_for_all_queues(settings: Any) -> None:
    def full(queue: str) -> bool:
        try:
            ojs.enqueue("a.job", [], queue=queue)
        except QueueFull:
            return True
        return False

    policies = {"_default": {"backpressure": {"max_depth": 2}}}
    policies |= {"large": {"backpressure": {"max_depth": 3}}}
    settings.OJS = {"QUEUES": policies}
    queues.configure("stored", {"backpressure": {"max_depth": 1}})
    assert [[full(name) for _ in range(4)] for name in ("any", "large", "stored")] == [
        [False, False, True, True],
        [False, False, False, True],
        [False, True, True, True],
    ]
    assert queues.default_policy().backpressure.max_depth == 2
    assert queues.get("any").config.backpressure.max_depth == 2
    # A default that an operator has set comes before that of the settings.
    queues.configure_default({"backpressure": {"max_depth": 4}})
    assert [full("any") for _ in range(3)] == [False, False, True]
    queues.configure_default({"backpressure": None})
    settings.OJS = {}
    assert [full("any") for _ in range(3)] == [False, False, False]


def test_a_process_that_starts_leaves_the_tickets_of_the_default_alone(settings: Any) -> None:
    settings.OJS = {"QUEUES": {"_default": {"backpressure": {"max_depth": 50}}}}
    push(queue="any")
    stored = list(Bound.objects.order_by("queue").values("queue", "since", "share"))
    assert {row["queue"] for row in stored} >= {"_default"}
    in_memory_state.reset()
    bounds.configured.apply()
    assert list(Bound.objects.order_by("queue").values("queue", "since", "share")) == stored


def test_a_sentence_names_a_few_and_counts_the_others() -> None:
    assert message(["a"]).startswith("The queue a has no limit: ")
    assert message(["a", "b"]).startswith("The queues a, b have no limit: ")
    many = message([str(n) for n in range(10)])
    assert many.startswith("The queues 0, 1, 2, 3, 4 and 5 more have no limit: ")


def test_the_check_warns_and_is_silent_before_the_tables_are_there() -> None:
    assert checks.check_bounds(databases=["default"]) == []
    push(queue="busy")
    (warning,) = checks.check_bounds(databases=["default"])
    assert warning.id == "django_ojs.W003"
    assert "busy" in warning.msg
    with mock.patch("django_ojs.checks.unbounded", side_effect=DatabaseError):
        assert checks.check_bounds(databases=["default"]) == []


def test_a_worker_says_so_once_when_it_starts(caplog: Any) -> None:
    call_command("ojs_worker", "--once", "--queues", "busy", "--no-reload")
    (line,) = [record.getMessage() for record in caplog.records if "W003" in record.getMessage()]
    assert "The queue busy has no limit:" in line


def test_who_silences_the_check_silences_the_worker(caplog: Any, settings: Any) -> None:
    settings.SILENCED_SYSTEM_CHECKS = ["django_ojs.W003"]
    call_command("ojs_worker", "--once", "--queues", "busy", "--no-reload")
    assert not [record for record in caplog.records if "W003" in record.getMessage()]
