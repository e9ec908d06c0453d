"""`export`, `import` and `purge`."""

from __future__ import annotations

import errno
import io
import json
import os
import tracemalloc
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.test import override_settings

from django_ojs.command_line import transfer
from django_ojs.command_line.console import Console
from django_ojs.extension import Hooks
from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.models import Job
from django_ojs.operations import queues
from django_ojs.operations.jobs import bulk, export
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.spec import ids
from django_ojs.spec.states import State
from django_ojs.spec.unique_policy import UniquePolicy
from tests.cases import together
from tests.command_line.run import Run, ojs
from tests.factories import age, hourly, in_state, jobs, push, push_many
from tests.http.api import Api
from tests.operations.workflows.scenes import chain, create
from tests.test_extension import Other, installed

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)


def lines_of(*arguments: str) -> list[dict[str, Any]]:
    run = ojs("export", *arguments)
    assert run.code == 0
    return [json.loads(line) for line in run.out.splitlines()]


@pytest.fixture
def load(tmp_path: Path) -> Any:
    """Return a function that imports these lines."""

    def run(lines: list[Any], *arguments: str) -> Run:
        file = tmp_path / "jobs.jsonl"
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        file.write_text("\n".join(texts) + "\n")
        return ojs("import", file, *arguments)

    return run


def envelope(**values: Any) -> dict[str, Any]:
    return {"id": str(ids.uuid7()), "type": "test.job", "queue": "mail", "args": [1]} | values


@pytest.mark.once
def test_steps_of_workflows_are_named_as_they_become_jobs_of_their_own(load: Any) -> None:
    steps = [{"type": f"test.{name}", "args": []} for name in ("first", "second")]
    create(chain(*steps))
    push(queue="mail")
    run = ojs("export")
    assert "Exported jobs: 2" in run.err
    assert "Jobs that are steps of workflows: 1. Their workflows" in run.err
    assert "steps of workflows" not in ojs("export", "queue:mail").err
    lines = [json.loads(line) for line in run.out.splitlines()]
    forget()
    for arguments in (["--dry-run"], []):
        imported = load(lines, *arguments)
        assert imported.code == 0
        assert "Jobs that were steps of workflows: 1. Each is imported" in imported.err
    assert jobs().get(type="test.first").workflow_id is None
    # What existed already was not imported.
    assert "steps of workflows" not in load(lines).err


def forget() -> None:
    """Delete all jobs, as if the export were imported elsewhere."""
    for state in ("available", "scheduled", "pending", "retryable", "completed", "discarded"):
        Job.objects.filter(state=state).delete()


def test_an_export_has_the_envelope_of_each_job_of_a_search() -> None:
    in_state("discarded", queue="mail")
    wanted = push(
        queue="mail", args=[{"card": 4111111111111111}], meta={"tenant": "acme"}, priority=5
    )
    push(queue="other")
    for search in (
        ["--queue", "mail", "--state", "available"],
        ["queue:mail", "state:available"],
        ["--search", "meta.tenant:acme"],
    ):
        (line,) = lines_of(*search)
        assert line["id"] == str(wanted.pk)
        assert (line["args"], line["meta"]) == ([{"card": 4111111111111111}], {"tenant": "acme"})
        assert (line["state"], line["priority"]) == ("available", 5)
    assert len(lines_of()) == 3
    assert "Exported jobs: 3, with their arguments." in ojs("export").err


def test_a_client_cannot_write_what_extensions_have_in_an_export(load: Any) -> None:
    known = {"colour": [1, 1.0, True, None, {"é": 2**53 - 1}]}
    sent = {"type": "test.job", "args": [], **known, "ojs_extensions": {"steps": 5}}
    job = Api().push(**sent)
    lines = lines_of()
    assert "ojs_extensions" not in job
    jobs().all().delete()
    assert load(lines).code == 0
    (line,) = lines_of()
    assert json.dumps(line["colour"]) == json.dumps(known["colour"])


def test_an_export_reads_pages_and_parts_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "PAGE", 5)
    monkeypatch.setattr(export, "ROWS", 2)
    monkeypatch.setattr(export, "BYTES", 100)
    wanted = [job.pk for job in push_many(11, queue="mail")]
    wanted += [push(queue="mail", args=["x" * 200]).pk for _ in range(2)]
    push(queue="other")
    found = [job.pk for job in export.stream(JobFilter(queue="mail"))]
    assert found == sorted(wanted)


def test_an_export_holds_a_part_of_the_jobs_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "BYTES", 400_000)
    for _ in range(30):
        push(queue="mail", args=["x" * 100_000])
    tracemalloc.start()
    try:
        for _ in export.stream(JobFilter(queue="mail")):
            pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Four of the thirty are a part; each is there as text and as a value while it is read.
    assert peak < 1_500_000


@pytest.mark.both
def test_what_is_exported_can_be_imported(load: Any) -> None:
    available = push(queue="mail", args=[1, "zwei"], meta={"a": 1}, priority=7, tags=["vip"])
    scheduled = in_state("scheduled", queue="mail")
    pending = in_state("pending", queue="mail")
    retryable = in_state("retryable", queue="retried", retry=hourly())
    before = {line["id"]: line for line in lines_of()}
    forget()
    run = load([*before.values()], "--json")
    assert (run.code, run.json["stored"], run.json["errors"]) == (0, 4, [])
    after = {line["id"]: line for line in lines_of()}
    assert after.keys() == before.keys()
    for key in map(str, (available.pk, scheduled.pk, pending.pk)):
        for name in ("type", "queue", "args", "meta", "state", "priority", "scheduled_at", "tags"):
            assert after[key].get(name) == before[key].get(name), name
    again = Job.objects.get(pk=retryable.pk)
    assert (again.state, again.attempt) == ("scheduled", 0)
    assert again.due_at is not None
    assert retryable.due_at is not None
    assert abs(again.due_at - retryable.due_at) < timedelta(milliseconds=2)


@pytest.mark.both
def test_an_import_can_be_repeated(load: Any) -> None:
    first, second = envelope(), envelope()
    assert load([first]).out == (
        "1 stored, 0 duplicate, 0 outbox, 0 dropped, 0 existing, 0 rejected.\n"
    )
    run = load([first, second, second], "--json")
    assert (run.code, run.json["stored"], run.json["existing"]) == (0, 1, 2)
    assert f"line 1: the job {first['id']} exists already, and is left as it is.\n" in run.err
    assert "line 3: the job" in run.err
    assert jobs().count() == 2


def test_a_line_that_is_rejected_is_named_and_the_others_are_stored(load: Any) -> None:
    run = load(
        [
            envelope(),
            "not json",
            "[1]",
            "",
            envelope(args=7),
            envelope(queue="NO"),
            envelope(id="7"),
            envelope(),
        ],
        "--json",
    )
    assert (run.code, run.json["stored"], run.json["rejected"]) == (1, 2, 5)
    assert [each["line"] for each in run.json["errors"]] == [2, 3, 5, 6, 7]
    assert "line 2: the document is not JSON:" in run.err
    assert "line 3: The line must be a JSON object: the envelope of a job.\n" in run.err
    assert "line 5: args must be an array" in run.err


def test_an_extension_that_cannot_import_what_it_has_of_a_job_rejects_this_job_only(
    load: Any,
) -> None:
    def imported(found: Mapping[UUID, Any]) -> None:
        for value in found.values():
            int(value)

    with installed(Other(Hooks(imported=imported))):
        run = load([envelope(ojs_extensions={"other": value}) for value in ("1", "a secret", "3")])
    assert (run.code, jobs().count()) == (1, 2)
    assert (
        "line 2: The extension other cannot import what it has of the job (ValueError)" in run.err
    )


def test_a_line_that_is_too_long_is_rejected_and_the_next_one_is_read(
    load: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_ojs.command_line.transfer._MORE_BYTES", 0)
    limits = {"MAX_ENVELOPE_BYTES": 1024 * 1024, "MAX_RESULT_BYTES": 1}
    with override_settings(OJS=limits):
        run = load([envelope(args=["x" * 3_000_000]), envelope()], "--json")
    assert (run.json["stored"], run.json["rejected"]) == (1, 1)
    assert "line 1: The line has more than 1,048,577 bytes." in run.err


def test_jobs_that_would_run_again_are_rejected_unless_that_is_meant(load: Any) -> None:
    done = in_state("completed", queue="mail")
    failed = in_state("discarded", queue="mail")
    running = in_state("active", queue="other")
    exported = lines_of()
    forget()
    Job.objects.filter(pk=running.pk).delete()
    rejected = load(exported, "--json")
    assert (rejected.code, rejected.json["rejected"]) == (1, 3)
    assert (
        "The job was completed when it was exported, and would run again. --rerun" in rejected.err
    )
    assert load(exported, "--rerun").code == 0
    assert {*jobs().values_list("pk", "state")} == {
        (job.pk, "available") for job in (done, failed, running)
    }
    again = load(exported, "--json")
    assert (again.code, again.json["existing"], again.json["rejected"]) == (0, 3, 0)


@pytest.mark.both
def test_a_job_in_a_dead_letter_queue_returns_to_the_queue_where_it_ran(load: Any) -> None:
    queues.configure("mail", {"dead_letter_queue": "mail-dead"})
    failed = in_state("discarded", queue="mail", retry=hourly(1))
    exported = lines_of()
    assert [line["queue"] for line in exported] == ["mail-dead"]
    forget()
    assert load(exported, "--rerun").code == 0
    assert jobs().get(pk=failed.pk).queue == "mail"


@pytest.mark.parametrize("state", ["Completed", ["completed"], {}])
def test_a_line_with_an_unknown_state_is_rejected(load: Any, state: object) -> None:
    run = load([envelope(state=state), envelope(state="available")], "--rerun", "--json")
    assert (run.code, run.json["stored"], run.json["rejected"]) == (1, 1, 1)
    assert run.err == f"line 1: state must be one of {', '.join(State)}.\n"


class Rejecting(io.StringIO):
    """A stream whose writes fail after the first."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str, /) -> int:
        if self.getvalue():
            raise self.error
        return super().write(text)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (BrokenPipeError(), ""),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "The output cannot be written: No space left on device.\n",
        ),
    ],
)
def test_an_export_that_cannot_be_written_fails_and_is_in_the_audit_trail(
    error: OSError, message: str
) -> None:
    push_many(5, queue="mail")
    run = ojs("export", out=Rejecting(error))
    assert (run.code, run.err) == (1, message)
    assert audited() == ("jobs.exported", {"jobs": 2})


def audited() -> tuple[str, Any]:
    """Return the action and the detail of the only entry of the audit trail."""
    entry = AuditEntry.primary.get()
    return entry.action, entry.detail


@pytest.mark.both
def test_an_import_that_is_interrupted_is_in_the_audit_trail(
    monkeypatch: pytest.MonkeyPatch, load: Any
) -> None:
    monkeypatch.setattr(transfer, "BATCH", 2)
    interrupt_at_second_call(monkeypatch, transfer, "push_batch")
    run = load([envelope() for _ in range(5)])
    assert (run.code, run.err) == (1, "Interrupted.\n")
    action, detail = audited()
    assert (action, detail["stored"], jobs().count()) == ("jobs.imported", 2, 2)


def interrupt_at_second_call(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Raise KeyboardInterrupt when this function is called again."""
    function, calls = getattr(owner, name), 0

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, call)


def test_a_purge_that_is_interrupted_is_in_the_audit_trail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    push_many(3, queue="mail")
    monkeypatch.setattr(bulk.purge, "__kwdefaults__", {"older_than": None, "limit": 2})
    interrupt_at_second_call(monkeypatch, bulk, "purge")
    assert ojs("purge", "mail", "--state", "available", "--yes").code == 1
    action, detail = audited()
    assert (action, detail["jobs"], jobs().count()) == ("queue.purged", 2, 1)


def test_a_dry_run_of_an_import_checks_and_stores_nothing(load: Any) -> None:
    existing = push(queue="mail")
    run = load([envelope(), envelope(id=str(existing.pk)), envelope(args=7)], "--dry-run")
    assert (run.code, run.out) == (1, "1 valid, 1 existing, 1 rejected.\n")
    assert jobs().count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_full_queue_rejects_its_jobs_and_no_others(load: Any) -> None:
    queues.configure("mail", {"backpressure": {"max_depth": 1}})
    run = load([envelope(), envelope(), envelope(queue="other")], "--json")
    assert (run.code, run.json["stored"], run.json["rejected"]) == (1, 2, 1)
    assert "line 2: " in run.err
    assert "full" in run.err
    queues.configure("mail", {"backpressure": {"max_depth": 5}})


@pytest.mark.both
def test_unique_policies_hold_for_an_import(load: Any) -> None:
    ignore = {"keys": ["type"], "on_conflict": "ignore"}
    reject = {"keys": ["type"], "on_conflict": "reject"}
    push(type="once", queue="mail", unique=UniquePolicy(keys=("type",), on_conflict="reject"))
    lines = [envelope(type="once", unique=ignore), envelope(type="once", unique=reject)]
    run = load([*lines, envelope()], "--json")
    assert (run.code, run.json["duplicate"], run.json["rejected"]) == (1, 1, 1)
    assert run.json["stored"] == 1
    assert [each["line"] for each in run.json["errors"]] == [2]


def test_a_batch_is_stored_by_its_middleware_once(load: Any) -> None:
    with override_settings(
        OJS={"ENQUEUE_MIDDLEWARE": ["tests.command_line.test_transfer.add_mark"]}
    ):
        run = load([envelope(id=None), envelope(type="dropped"), envelope()], "--json")
    assert (run.json["stored"], run.json["dropped"]) == (2, 1)
    assert [job.args for job in jobs()] == [[1, "marked"]] * 2


def add_mark(job: Any, call_next: Any) -> Any:
    job.args.append("marked")
    return None if job.type == "dropped" else call_next(job)


def test_stdin_is_read_without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = io.TextIOWrapper(io.BytesIO(json.dumps(envelope()).encode()))
    monkeypatch.setattr("sys.stdin", lines)
    assert ojs("import").out.startswith("1 stored")


def test_a_file_that_is_not_there_ends_with_2() -> None:
    run = ojs("import", "/no/such/file")
    assert (run.code, run.err) == (
        2,
        "/no/such/file cannot be read: No such file or directory.\n",
    )


def test_a_file_that_cannot_be_read_to_its_end_keeps_what_was_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Failing(io.BytesIO):
        name = "jobs.jsonl"

        def readline(self, size: int | None = -1, /) -> bytes:
            if line := super().readline(size):
                return line
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    lines = b'{"type":"a","args":[]}\n' * (transfer.BATCH + 1)
    monkeypatch.setattr(Path, "open", lambda path, mode: Failing(lines))
    run = ojs("import", "jobs.jsonl")
    assert (run.code, run.err) == (1, "jobs.jsonl cannot be read: Input/output error.\n")
    assert Job.objects.count() == transfer.BATCH


def test_a_stderr_that_cannot_be_written_is_no_fault_of_the_file(
    load: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reject(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(Console, "note", reject)
    run = load(["not json"])
    assert (run.code, run.err) == (1, "")


@pytest.mark.both
def test_purge_deletes_the_jobs_of_a_queue_in_these_states(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    push_many(3, queue="mail")
    in_state("scheduled", queue="mail")
    push(queue="other")
    search = ("purge", "mail", "--state", "available,scheduled")
    assert ojs(*search, "--dry-run").out == (
        "This would delete 4 jobs of mail (available, scheduled); nothing was changed.\n"
    )
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert ojs(*search).code == 2
    assert jobs().count() == 5
    # Several calls of the operation.
    monkeypatch.setattr(bulk.purge, "__kwdefaults__", {"older_than": None, "limit": 2})
    assert ojs(*search, "--yes").out == "4 deleted, 0 failed.\n"
    assert list(jobs().values_list("queue", flat=True)) == ["other"]


def test_purge_by_age_leaves_the_younger_ones() -> None:
    old, new = (in_state("completed", queue="mail") for _ in range(2))
    age(old.pk, 8 * DAY)
    run = ojs("purge", "mail", "--state", "completed", "--older-than", "7d", "--json")
    assert run.json == {"queue": "mail", "deleted": 1, "failed": 0}
    assert jobs().get().pk == new.pk


@together(
    ("arguments", "message"),
    [
        (["mail", "--state", "active"], "a running job is cancelled, not purged"),
        (["mail", "--state", "available", "--older-than", "7d"], "older_than needs states of jobs"),
        (["mail", "--state", "late"], "must be one of scheduled"),
        (["mail"], "--state"),
        (["mial", "--state", "available"], "Did you mean mail?"),
        (["mail", "--state", "completed", "--older-than", "x"], "must be a duration"),
    ],
    undo=True,
)
def test_purge_of_what_cannot_be_purged_changes_nothing(arguments: list[str], message: str) -> None:
    push(queue="mail")
    run = ojs("purge", *arguments, "--yes")
    assert message in run.err
    assert run.code
    assert jobs().count() == 1
