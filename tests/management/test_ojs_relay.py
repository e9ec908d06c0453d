"""The arguments of `manage.py ojs_relay`, and what it says."""

from __future__ import annotations

import builtins
import os
import signal
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import ProgrammingError
from django.db.migrations.recorder import MigrationRecorder
from django.test import override_settings

from django_ojs.extensions.outbox import local
from django_ojs.extensions.outbox.management.commands import ojs_relay
from django_ojs.extensions.outbox.models import OutboxEntry
from tests.docs.runner import command
from tests.factories import EnvelopeFactory, put

pytestmark = pytest.mark.django_db(transaction=True)

Migration = MigrationRecorder.Migration

OJS = {"OUTBOX": {"far": {"url": "http://127.0.0.1:9", "queues": ["far"]}}}


def test_a_destination_that_does_not_exist_is_named_beside_those_that_do() -> None:
    with override_settings(OJS=OJS), pytest.raises(CommandError) as caught:
        call_command("ojs_relay", destination=["fra"], once=True)
    assert "'fra'; there are far, local" in str(caught.value)


def test_jobs_of_this_site_are_stored_by_it(capsys: pytest.CaptureFixture[str]) -> None:
    put(EnvelopeFactory())
    call_command("ojs_relay", destination=["local"], once=True)
    assert "local: 1 stored" in capsys.readouterr().out
    assert OutboxEntry.objects.get().state == "sent"


def test_a_server_that_is_away_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    with override_settings(OJS=OJS):
        put(EnvelopeFactory(queue="far"), "far")
        call_command("ojs_relay", once=True)
    assert "far: 0 sent, 0 rejected" in capsys.readouterr().out
    assert OutboxEntry.objects.get().error_code == "unreachable"


def test_what_is_missing_is_named_where_httpx_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name == "django_ojs.extensions.outbox.sender":
            raise ImportError
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    with override_settings(OJS=OJS), pytest.raises(CommandError) as caught:
        call_command("ojs_relay", once=True)
    assert "django-ojs[outbox]" in str(caught.value)


def test_tables_that_are_missing_are_no_database_that_does_not_respond(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = list(Migration.objects.filter(app="django_ojs").values())
    calls: list[int] = []

    def deliver_all() -> int:
        calls.append(1)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
            return 0
        if len(calls) == 2:
            Migration.objects.bulk_create(Migration(**row) for row in before)
        raise ProgrammingError("there is no such table")

    monkeypatch.setattr(local, "deliver_all", deliver_all)
    monkeypatch.setattr(ojs_relay, "POLL_INTERVAL", 0.0)
    Migration.objects.filter(app="django_ojs").delete()
    try:
        call_command("ojs_relay")
    finally:
        if len(calls) < 2:
            Migration.objects.bulk_create(Migration(**row) for row in before)
    said = capsys.readouterr().err
    assert "missing or old in 'default': run `manage.py migrate`" in said
    # It goes on when the tables are there.
    assert len(calls) == 3


def test_the_help_teaches() -> None:
    text = command("ojs_relay").create_parser("manage.py", "ojs_relay").format_help()
    for word in ("--once", "--destination", "ojs_worker", "Retry-After", "admin"):
        assert word in text
