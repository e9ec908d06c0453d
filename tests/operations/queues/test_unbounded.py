"""Queues without a bound are named once, unless that is configured (backpressure §6.3)."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from django.core.management import call_command
from django.db import DatabaseError

from django_ojs import checks
from django_ojs.operations import queues
from django_ojs.operations.queues.unbounded import message, unbounded
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


def test_a_sentence_names_a_few_and_counts_the_others() -> None:
    assert "No bound is set for a, b:" in message(["a", "b"])
    assert "No bound is set for 0, 1, 2, 3, 4 and 5 more:" in message([str(n) for n in range(10)])


def test_the_check_warns_and_is_silent_before_the_tables_are_there() -> None:
    assert checks.check_bounds() == []
    push(queue="busy")
    (warning,) = checks.check_bounds()
    assert warning.id == "django_ojs.W003"
    assert "busy" in warning.msg
    with mock.patch("django_ojs.checks.unbounded", side_effect=DatabaseError):
        assert checks.check_bounds() == []


def test_a_worker_says_so_once_when_it_starts(caplog: Any) -> None:
    call_command("ojs_worker", "--once", "--queues", "busy", "--no-reload")
    (line,) = [record.getMessage() for record in caplog.records if "W003" in record.getMessage()]
    assert "No bound is set for busy:" in line


def test_who_silences_the_check_silences_the_worker(caplog: Any, settings: Any) -> None:
    settings.SILENCED_SYSTEM_CHECKS = ["django_ojs.W003"]
    call_command("ojs_worker", "--once", "--queues", "busy", "--no-reload")
    assert not [record for record in caplog.records if "W003" in record.getMessage()]
