"""`stats` and `workers`."""

from __future__ import annotations

import io
import json
import re

import pytest
from django.core.management import call_command
from django.db import connection

from django_ojs.management.commands.ojs import subcommands
from django_ojs.models import Queue
from django_ojs.operations import queues
from django_ojs.operations.maintenance import mode
from django_ojs.operations.workers import rescue
from tests.command_line.run import Terminal, ojs
from tests.factories import (
    HOUR,
    WorkerFactory,
    active,
    age,
    connected_to,
    in_state,
    push,
    push_many,
    silence,
)

pytestmark = [pytest.mark.django_db, pytest.mark.once]


def test_workers_of_pools_are_listed_with_their_pool() -> None:
    WorkerFactory(id="one", queues=("pay",), pool="critical")
    assert ojs("workers", "--json").json["workers"][0]["pool"] == "critical"
    WorkerFactory(id="two", queues=("mail",))
    head, one, two = [line.split() for line in ojs("workers").out.splitlines()[-3:]]
    column = head.index("POOL")
    assert (one[column], two[column]) == ("critical", "-")


def test_stats_without_jobs_says_so() -> None:
    run = ojs("stats")
    assert run.code == 0
    assert "Jobs: 0 scheduled" in run.out
    assert "No queue has had a job yet." in run.out


@pytest.mark.both
@pytest.mark.both
def test_stats_shows_each_queue_and_the_sums() -> None:
    waiting = push_many(3, queue="mail")
    age([job.pk for job in waiting], HOUR)
    active(queue="reports")
    queues.configure("mail", {"backpressure": {"max_depth": 4}})
    queues.pause("mail")
    WorkerFactory(queues=("reports",))
    run = ojs("stats")
    assert "3 available" in run.out
    assert "1 active" in run.out
    assert "Workers: 1" in run.out
    head, mail, reports = [line.split() for line in run.out.splitlines()[-3:]]
    assert dict(zip(head, mail, strict=True)) | {"IN/MIN": ""} == {
        "NAME": "mail",
        "STATE": "paused",
        "AVAILABLE": "3",
        "SCHEDULED": "0",
        "RETRYABLE": "0",
        "ACTIVE": "0",
        "IN/MIN": "",
        "OUT/MIN": "0.0",
        "OLDEST": "1h",
        "PRESSURE": "75%",
        "WORKERS": "0",
    }
    assert (reports[:2], reports[5], reports[-1]) == (["reports", "active"], "1", "1")


def test_stats_as_json_has_the_numbers_of_the_table() -> None:
    push_many(2, queue="mail")
    in_state("discarded", queue="other")
    run = ojs("stats", "--json", "--queue", "mail")
    (mail,) = run.json["queues"]
    assert (mail["name"], mail["depth"], mail["jobs"]["available"]) == ("mail", 2, 2)
    assert (mail["max_depth"], mail["pressure"], mail["workers"]) == (None, None, 0)
    assert run.json["jobs"]["discarded"] == 1
    assert run.json["maintenance_mode"] is False


def test_stats_limits_the_queues_and_says_how_many_more_there_are() -> None:
    push_many(3, queue="deep")
    push(queue="flat")
    run = ojs("stats", "--limit", "1")
    assert "deep" in run.out
    assert "flat" not in run.out
    assert "Queues that are not shown: 1 (--limit, or --queue NAME)." in run.out


def test_stats_of_an_unknown_queue_fails() -> None:
    run = ojs("stats", "--queue", "no-queue")
    assert (run.code, run.out) == (2, "")
    assert run.err == "There is no queue 'no-queue'. No queue has had a job yet.\n"


def test_maintenance_mode_and_stale_workers_are_shown() -> None:
    mode.enable(reason="the new disk")
    WorkerFactory(id="gone")
    silence("gone", HOUR)
    run = ojs("stats")
    assert "Maintenance mode is on: the new disk" in run.out
    assert "Workers: 1, 1 stale" in run.out


def test_a_terminal_gets_colours_unless_it_wants_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    active(queue="mail")
    assert "\x1b[" in ojs("stats", out=Terminal()).out
    assert "\x1b[" not in ojs("stats").out
    assert "\x1b[" not in ojs("stats", "--no-color", out=Terminal()).out
    assert "\x1b[" in ojs("stats", "--force-color").out
    monkeypatch.setenv("NO_COLOR", "1")
    plain = ojs("stats", out=Terminal()).out
    assert "\x1b[" not in plain
    assert plain.splitlines()[-1].startswith("mail ")


def test_a_name_stays_whole_in_a_terminal_that_is_narrower_than_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = in_state("completed", queue="mail", type=f"a.very.long.type.{'x' * 60}")
    monkeypatch.setenv("COLUMNS", "40")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", ojs("jobs", out=Terminal()).out)
    assert len(shown.splitlines()) == 2
    row = shown.splitlines()[1].split()
    assert row[:4] == [str(job.pk)[:8], job.type, "mail", "completed"]
    # A file has all of it.
    assert str(job.pk) in ojs("jobs").out


@pytest.mark.both
def test_workers_shows_what_each_does() -> None:
    assert "manage.py ojs_worker" in ojs("workers").out
    queues = ("mail", "reports")
    WorkerFactory(id="busy", queues=queues, hostname="web-1", pid=7, concurrency=4)
    WorkerFactory(id="gone")
    silence("gone", HOUR)
    head, busy, gone = [line.split() for line in ojs("workers").out.splitlines()]
    assert head[:4] == ["ID", "STATE", "QUEUES", "POOL"]
    assert busy[:4] == ["busy", "running", "mail,", "reports"]
    assert busy[4:9] == ["-", "0", "4", "web-1", "7"]
    assert gone[:2] == ["gone", "stale"]
    found = ojs("workers", "--json").json
    assert (found["total"], found["running"], found["stale"]) == (2, 1, 1)
    assert found["workers"][0]["queues"] == ["mail", "reports"]


@pytest.mark.both
@pytest.mark.both
def test_workers_that_died_are_shown_below_those_that_live() -> None:
    WorkerFactory(id="busy")
    WorkerFactory(id="victim")
    active("victim", queue="mail")
    rescue.rescue(["victim"], exit_code=-9)
    shown = ojs("workers").out
    assert re.search(r"Died in the last day:\nID .*\nvictim +killed by SIGKILL +.* ago +1\n", shown)
    (dead,) = ojs("workers", "--json").json["died"]
    assert (dead["id"], dead["how"], dead["jobs_rescued"]) == ("victim", "killed by SIGKILL", 1)


def test_on_a_terminal_of_80_columns_a_worker_keeps_its_last_digits_and_whole_queues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    queues = ("customer-mail", "customer-reports", "payments")
    id = "worker_019539a4-b68c-7def-8000-1a2b3c4d5e6f"
    WorkerFactory(id=id, queues=queues, hostname="web-1", concurrency=4)
    WorkerFactory(id="died", queues=queues)
    rescue.rescue(["died"], exit_code=-9)
    head, row, *_rest = ojs("workers", "--no-color", out=Terminal()).out.splitlines()
    assert max(len(head), len(row)) <= 80
    shown = dict(zip(re.split("  +", head), re.split("  +", row), strict=True))
    assert shown["ID"].startswith("…")
    assert id.endswith(shown["ID"][1:])
    assert len(shown["ID"]) > 8
    assert shown["QUEUES"] == "customer-mail +2"
    assert shown["SLOTS"] == "4"
    assert shown["SEEN"].endswith(" ago")
    # Nobody has a pool or labels: these go first.
    assert shown.keys().isdisjoint(("POOL", "LABELS", "PID"))
    # A wider terminal, and a program, have all of it.
    monkeypatch.setenv("COLUMNS", "200")
    assert f"{id}  running  {', '.join(queues)}" in ojs("workers", "--no-color", out=Terminal()).out
    assert id in ojs("workers").out


def test_the_name_of_a_host_cannot_write_to_the_terminal() -> None:
    WorkerFactory(id="busy", hostname="web\x1b[2Jx")
    assert "web?[2Jx" in ojs("workers").out


def test_without_a_subcommand_the_help_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert ojs().code == 2
    text = capsys.readouterr().out
    for name in subcommands():
        assert f"\n    {name} " in text


def test_the_help_has_examples_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in (
        ([], ("Exit codes: 0 success", "retry is:dead queue:email")),
        (["stats"], ("examples:", "ojs stats --watch")),
        (["jobs"], ("args.user_id:42", "\n  state:retryable, state:available,scheduled")),
    ):
        with pytest.raises(SystemExit) as end:
            call_command("ojs", *arguments, "--help")
        assert end.value.code == 0
        shown = capsys.readouterr().out
        assert all(word in shown for word in words), shown


@pytest.mark.both
@pytest.mark.both
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("arguments", [["stats"], ["doctor"], ["jobs"]])
def test_a_database_that_cannot_be_used_is_named_with_its_reason(arguments: list[str]) -> None:
    name = "/no/such/folder/db" if connection.vendor == "sqlite" else "no_such_database"
    with connected_to({"NAME": name}):
        run = ojs(*arguments)
    assert run.code == 1
    assert run.err.startswith("The database 'default' does not respond (OperationalError: ")


@pytest.mark.parametrize("word", ["\udcff", "args.x:\udcff", "a\udc80b"])
def test_an_argument_that_is_no_text_is_rejected_before_anything_is_done(word: str) -> None:
    # So Python hands over bytes that are no UTF-8, as `$'\xff'` of a shell. No driver takes them.
    push(queue="mail")
    for arguments in (
        ["jobs", word],
        ["show", word],
        ["pause", "mail", word],
        ["cron", "run", word],
    ):
        run = ojs(*arguments)
        assert run.code == 2
        assert run.err.startswith("An argument is no text in the encoding of this shell: ")
    assert Queue.objects.filter(paused_at__isnull=False).count() == 0


class TestATerminalWithoutAllCharacters:
    """Such as one of ISO 8859-1, or PYTHONIOENCODING=ascii."""

    def shown(self, *arguments: str) -> str:
        out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
        call_command("ojs", *arguments, stdout=out)
        out.seek(0)
        return out.read()

    def test_a_person_sees_question_marks(self) -> None:
        key = push(args=["caf\u00e9 \U0001f600"]).id
        assert "caf? ?" in self.shown("show", str(key), "--args")

    def test_a_program_reads_the_same_document(self) -> None:
        key = push(args=["caf\u00e9 \U0001f600 \\u00e9"]).id
        found = json.loads(self.shown("show", str(key), "--args", "--json"))
        assert found["args"] == ["caf\u00e9 \U0001f600 \\u00e9"]


def test_a_database_of_another_kind_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_ojs.storage.database.of_vendor", lambda vendor: None)
    run = ojs("stats")
    assert run.code == 1
    assert "django_ojs keeps jobs in PostgreSQL, SQLite or MariaDB" in run.err


def test_djangos_arguments_are_understood_after_the_subcommand() -> None:
    assert ojs("stats", "--no-color", "--verbosity", "0").code == 0
