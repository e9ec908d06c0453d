"""`jobs` and `show`."""

from __future__ import annotations

import re
import shlex
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs.command_line.job_ids import whole_id
from django_ojs.extensions.checkpoints import operations as checkpoint
from django_ojs.extensions.workflows.api import group
from django_ojs.models import Job
from django_ojs.operations import fail, progress, queues
from django_ojs.operations.jobs import listing
from django_ojs.operations.jobs.redaction import HIDDEN
from django_ojs.spec import ids
from django_ojs.spec.failure import Failure
from django_ojs.storage.dialects.expressions import InWorkflow
from tests.cases import together
from tests.command_line.run import Terminal, ojs
from tests.factories import HOUR, active, hourly, in_state, push, push_many, read
from tests.testapp.testing_jobs import send

pytestmark = [pytest.mark.django_db, pytest.mark.once]

SECRET = {"card": 4111111111111111}


def failed(**values: object) -> str:
    claimed = active(retry=hourly(1), **values)
    fail.fail(claimed.id, Failure(type="Boom", message="only dust is left"))
    return str(claimed.id)


@pytest.mark.both
@pytest.mark.both
def test_dead_letters_are_shown_by_cause_and_a_group_is_retried() -> None:
    assert ojs("dead-letters").out == "There are no dead letters.\n"
    for number, kind in ((3, "smtp Rejected"), (2, "Boom"), (1, "O'Neill")):
        for _ in range(number):
            policy = hourly(1, on_exhaustion="dead_letter")
            job = active(queue="mail", type="mail.send", retry=policy)
            fail.fail(job.id, Failure(type=kind, message="550"))
    lines = ojs("dead-letters").out.splitlines()
    rows = [re.split("  +", line.strip())[:5] for line in lines[1:4]]
    assert rows == [
        ["3", "smtp Rejected", "550", "mail.send", "mail"],
        ["2", "Boom", "550", "mail.send", "mail"],
        ["1", "O'Neill", "550", "mail.send", "mail"],
    ]
    assert "Dead letters: 6." in lines
    assert "The first 2 of 3 groups: --limit lists more." in ojs("dead-letters", "--limit", 2).out
    (told,) = [line for line in lines if "manage.py ojs retry" in line]
    command = shlex.split(told.partition("manage.py ojs ")[2])
    assert ojs(*command, "--yes").code == 0
    found = ojs("dead-letters", "--json").json
    assert [(each["error_type"], each["jobs"]) for each in found["groups"]] == [
        ("Boom", 2),
        ("O'Neill", 1),
    ]
    assert (found["groups_total"], found["jobs_total"]) == (2, 3)
    for each in found["groups"]:
        assert ojs("retry", "--search", each["search"], "--yes").code == 0
    assert not Job.objects.filter(dead_letter=True).exists()


@pytest.mark.both
@pytest.mark.both
def test_jobs_finds_what_the_search_of_the_admin_finds() -> None:
    job = failed(queue="mail", type="mail.send", args=[SECRET])
    push(queue="mail")
    for search in (
        ["state:discarded", "queue:mail"],
        ["state:discarded queue:mail"],
        ["--state", "discarded", "--queue", "mail"],
        ["--search", "error_type:Boom"],
        ["args.card:4111111111111111"],
        ["mail.se"],
        [job],
    ):
        run = ojs("jobs", *search)
        (row,) = run.out.splitlines()[1:]
        assert row.split()[:6] == [job, "mail.send", "mail", "dead", "letter", "1/1"]
        assert row.split()[-1] == "Boom"
        assert str(SECRET["card"]) not in run.out
        assert "dust" not in run.out


def test_without_a_job_it_says_so() -> None:
    run = ojs("jobs", "type:none")
    assert (run.code, run.out) == (0, "No job matches.\n")
    assert ojs("jobs", "type:none", "--json").json == {"jobs": [], "next": None}


def test_a_page_is_full_however_few_of_the_jobs_match(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each scan reads two jobs.
    defaults = {**(listing.list_jobs.__kwdefaults__ or {}), "scan_limit": 2}
    monkeypatch.setattr(listing.list_jobs, "__kwdefaults__", defaults)
    wanted = [str(push(queue="mail", tags=["rare"]).pk)]
    push_many(9, queue="mail")
    assert [job["id"] for job in ojs("jobs", "tag:rare", "--json").json["jobs"]] == wanted
    # A search that takes long says how far it is, beside its result.
    run = ojs("jobs", "tag:rare", err=Terminal())
    assert "\r2 of about 10 jobs read, 0 found" in run.err
    assert "\r10 of about 10 jobs read, 1 found" in run.err
    assert run.err.rpartition("\r")[2].strip("\x1b[K") == ""
    assert "read" not in run.out
    assert not ojs("jobs", "tag:rare").err


@together(
    ("arguments", "message"),
    [
        (["colour:red"], "There is no qualifier colour."),
        (["state:failed"], "There is no state failed. Did you mean discarded?"),
        (["--state", "x"], "--state: There is no state x. The states are scheduled,"),
        (["state:active", "--state", "discarded"], "The state is given twice"),
        (["queue:a", "--queue", "b"], "The queue is given twice"),
        (["--queue", "A B"], "queue must consist of"),
        (["--after", "x"], "--after must be the `next` of the same list."),
    ],
    undo=True,
)
def test_a_search_that_cannot_be_understood_ends_with_2(arguments: list[str], message: str) -> None:
    run = ojs("jobs", *arguments)
    assert (run.code, run.out) == (2, "")
    assert message in run.err


def test_show_hides_what_a_job_carries_unless_it_is_asked_for() -> None:
    job = failed(queue="mail", type="mail.send", args=[SECRET], meta={"tenant": "acme"})
    run = ojs("show", job)
    assert run.out.startswith(f"mail.send {job}\n")
    assert "state      discarded (dead letter)" in run.out
    assert "queue      mail, priority 0" in run.out
    assert "1  failed" in run.out
    assert "Boom" in run.out
    assert "Arguments, metadata and result: --args." in run.out
    for hidden in ("4111111111111111", "acme", "dust"):
        assert hidden not in run.out
        assert hidden not in ojs("show", job, "--json").out
        assert hidden in ojs("show", job, "--args").out
        assert hidden in ojs("show", job, "--args", "--json").out


def test_show_as_json_is_the_envelope() -> None:
    job = failed(queue="mail", type="mail.send", args=[SECRET])
    shown = ojs("show", job, "--json").json
    assert (shown["id"], shown["type"], shown["state"]) == (job, "mail.send", "discarded")
    assert shown["error"]["type"] == "Boom"
    assert shown["errors"][0]["attempt"] == 1
    assert "args" not in shown
    assert ojs("show", job, "--json", "--args").json["args"] == [SECRET]


def test_show_names_the_parent_and_finds_the_children() -> None:
    parent = push()
    job = push(parent_id=parent.pk)
    children = [str(push(parent_id=job.pk).pk) for _ in range(2)]
    run = ojs("show", str(job.pk))
    assert f"parent     {parent.pk}" in run.out
    assert f"children   2 jobs: manage.py ojs jobs parent:{job.pk}" in run.out
    shown = ojs("show", str(job.pk), "--json").json
    assert (shown["parent_id"], shown["children"]) == (str(parent.pk), children)
    found = ojs("jobs", f"parent:{job.pk}", "--json").json["jobs"]
    assert sorted(each["id"] for each in found) == children
    assert "children" not in ojs("show", children[0]).out


def test_what_the_settings_hide_is_not_shown_and_not_searched() -> None:
    job = failed(args=[SECRET, {"order": 7}])
    with override_settings(OJS={"ADMIN_REDACT": ["card"]}):
        run = ojs("show", job, "--args")
        assert str(SECRET["card"]) not in run.out
        assert HIDDEN in run.out
        assert '"order": 7' in run.out
        assert ojs("show", job, "--args", "--json").json["args"] == [{"card": HIDDEN}, {"order": 7}]
        rejected = ojs("jobs", "args.card:4111111111111111")
        assert rejected.code == 2
        assert "This site hides" in rejected.err
    with override_settings(OJS={"ADMIN_REDACT": ["*"]}):
        for more in ([], ["--json"]):
            run = ojs("show", job, "--args", *more)
            assert str(SECRET["card"]) not in run.out
            assert "dust" not in run.out


def test_show_of_what_is_no_job_fails() -> None:
    unknown = ojs("show", ids.uuid7())
    assert (unknown.code, unknown.out) == (1, "")
    assert "There is no job with this id." in unknown.err
    workflow = group(send.s("ada")).enqueue()
    other = ojs("show", str(workflow.id))
    assert other.code == 2
    assert f"manage.py ojs workflows show {workflow.id}" in other.err
    (job,) = Job.objects.filter(InWorkflow(workflow.id))
    assert f"workflow   {workflow.id}" in ojs("show", str(job.pk)).out
    group(send.s("bob"), send.s("cyd")).enqueue()
    for search in (f"workflow:{workflow.id}", f"workflow:{workflow.id} state:available"):
        (found,) = ojs("jobs", search, "--json").json["jobs"]
        assert found["id"] == str(job.pk)
    assert ojs("jobs", f"workflow:{job.pk}", "--json").json["jobs"] == []
    wrong = ojs("show", "7")
    assert wrong.code == 2
    assert "id" in wrong.err


def test_a_running_job_shows_its_worker() -> None:
    job = in_state("active")
    assert "worker     worker-a" in ojs("show", job.pk).out
    assert ojs("show", job.pk, "--json").json["worker_id"] == "worker-a"


def test_a_running_job_shows_how_far_it_is() -> None:
    job = in_state("active")
    assert "progress" not in ojs("show", job.pk).out
    report = progress.Report(progress=0.4, data={"message": "page 4 of 10"})
    progress.report(job.pk, report)
    checkpoint.save(job.pk, {"page": 4})
    run = ojs("show", job.pk)
    assert "progress   40%" in run.out
    assert "checkpoint the next run continues there" in run.out
    assert "page 4" not in run.out
    assert "page 4 of 10" in ojs("show", job.pk, "--args").out


class TestTheBeginningOfAnId:
    KEYS = (
        "01920000-0000-7000-8000-00000000000a",
        "01920000-0001-7000-8000-00000000000b",
        "01930000-0000-7000-8000-00000000000c",
    )

    @pytest.fixture(autouse=True)
    def _jobs(self) -> None:
        for key in self.KEYS:
            push(id=UUID(key), queue="mail", type="mail.send", scheduled_at=HOUR)

    @pytest.mark.both
    @pytest.mark.both
    @pytest.mark.parametrize(
        "beginning",
        ["0193", "01930", "01930000-", "01930000-0000-7000-8000-00000000000", "019300000000700"],
    )
    def test_it_stands_for_the_job(self, beginning: str) -> None:
        assert ojs("show", beginning, "--json").json["id"] == self.KEYS[2]
        assert ojs("run-now", beginning).code == 0
        assert ojs("cancel", beginning).code == 0
        assert Job.objects.get(state="cancelled").pk == UUID(self.KEYS[2])

    @pytest.mark.both
    @pytest.mark.parametrize("command", ["show", "retry", "run-now", "cancel"])
    def test_of_several_jobs_it_names_them_and_changes_none(self, command: str) -> None:
        run = ojs(command, "0192")
        assert (run.code, run.out) == (1, "")
        assert run.err.splitlines() == [
            "The ids of several jobs begin with 0192:",
            f"  {self.KEYS[0]}  scheduled  mail.send  mail",
            f"  {self.KEYS[1]}  scheduled  mail.send  mail",
        ]
        assert Job.objects.filter(state="scheduled").count() == 3
        assert ojs("show", "01920000-0001", "--json").json["id"] == self.KEYS[1]

    def test_of_very_many_the_first_are_named(self) -> None:
        push_many(11, queue="mail")
        run = ojs("cancel", str(Job.objects.latest("pk").pk)[:4])
        assert run.err.splitlines()[-1] == "  …"
        assert len(run.err.splitlines()) == 12

    @pytest.mark.parametrize("command", ["show", "retry"])
    @pytest.mark.parametrize(
        ("beginning", "code", "message"),
        [
            ("019", 2, "019 is too short: give at least 4 characters of the id."),
            ("0194", 1, "There is no job whose id begins with 0194."),
            ("0192-00", 2, "must be a UUIDv7"),
        ],
    )
    def test_what_is_no_beginning_is_said(
        self, command: str, beginning: str, code: int, message: str
    ) -> None:
        run = ojs(command, beginning)
        assert (run.code, run.out) == (code, "")
        assert message in run.err

    def test_a_whole_id_of_another_kind_is_no_beginning(self) -> None:
        other = uuid4()
        assert "must be a UUIDv7" in ojs("show", other).err
        assert "1 failed" in ojs("retry", f"1{str(other)[1:]}").out

    def test_a_word_of_letters_is_the_beginning_of_a_type(self) -> None:
        push(type="feed.read", queue="feeds", scheduled_at=HOUR)
        assert ojs("cancel", "feed").code == 0
        assert Job.objects.get(state="cancelled").type == "feed.read"

    @pytest.mark.postgresql
    def test_the_primary_key_finds_it(self) -> None:
        with CaptureQueriesContext(connection) as captured:
            whole_id("0193")
        (query,) = captured
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_seqscan = off")
            cursor.execute(f"EXPLAIN {query['sql']}")
            plan = "\n".join(line for (line,) in cursor.fetchall())
        assert re.search(
            r"Index Scan using ojs_job_pkey|Bitmap Index Scan on ojs_job_pkey", plan
        ), plan
        assert "Index Cond: ((id >=" in plan


@pytest.mark.both
@pytest.mark.parametrize(
    "arguments", [("jobs",), ("jobs", "--json"), ("retry", "--yes"), ("export",)]
)
def test_a_search_in_a_queue_that_does_not_exist_fails_with_a_sentence(
    arguments: tuple[str, ...],
) -> None:
    push(queue="mail")
    command, *rest = arguments
    run = ojs(command, "queue:mial", *rest)
    assert (run.code, run.out) == (1, "")
    assert run.err == "There is no queue mial. Did you mean mail? The queues are mail.\n"
    assert "There is no queue" not in ojs(command, "queue:mail", *rest).err


@pytest.mark.both
def test_the_dead_letters_of_a_deleted_queue_are_retried_by_the_command_that_is_shown() -> None:
    push(queue="mail")
    job = failed(queue="closed")
    queues.delete("closed")
    line = next(each for each in ojs("dead-letters").out.splitlines() if "To retry" in each)
    run = ojs(*shlex.split(line.partition("manage.py ojs ")[2]))
    assert (run.code, run.err) == (0, "")
    assert read(UUID(job)).state == "available"


def test_on_a_terminal_of_80_columns_no_name_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    job = failed(queue="customer-mail", type="mail.send_all")
    text = ojs("jobs", "--no-color", out=Terminal()).out
    head, row = text.splitlines()
    assert max(len(head), len(row)) <= 80
    assert head.split() == ["ID", "TYPE", "QUEUE", "STATE", "TIME"]
    assert row.split()[:4] == [job[:8], "mail.send_all", "customer-mail", "dead"]
    # Its beginning stands for the job.
    assert job in ojs("show", row.split()[0]).out
    push(queue="other")
    *_rows, more, after = ojs("jobs", "--limit", 1, out=Terminal()).out.splitlines()
    assert more.startswith("There are 2 jobs. The next ones:")
    assert max(len(more), len(after)) <= 80
    # It is copied as it is.
    assert after.startswith("--after=")
    assert job in ojs("jobs", after, "--json").out


def test_dead_letters_with_long_names_show_their_queue_at_80_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    retry = hourly(1, on_exhaustion="dead_letter")
    job = active(queue="email", type="email.newsletter", retry=retry)
    error = Failure(type="smtplib.SMTPServerDisconnected", message="Connection closed " * 9)
    fail.fail(job.id, error)
    head, row, *_rest = ojs("dead-letters", "--no-color", out=Terminal()).out.splitlines()
    assert max(len(head), len(row)) <= 80
    assert head.split()[-2:] == ["TYPE", "QUEUE"]
    assert row.split()[1] == error.type
    assert row.split()[-2:] == ["email.newsletter", "email"]


def test_dead_letters_of_one_message_are_a_group_whatever_its_numbers_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = hourly(1, on_exhaustion="dead_letter")
    for message in ("order 17 of 'ann' failed", "order 4 of 'bob' failed", "the disk is full"):
        job = active(queue="mail", type="mail.send", retry=policy)
        fail.fail(job.id, Failure(type="Boom", message=message))
    found = ojs("dead-letters", "--json").json["groups"]
    assert [(each["jobs"], each["message"]) for each in found] == [
        (2, "order … of … failed"),
        (1, "the disk is full"),
    ]
    monkeypatch.setenv("COLUMNS", "80")
    shown = ojs("dead-letters", "--no-color", out=Terminal()).out.splitlines()
    assert re.split("  +", shown[1].strip())[:5] == [
        "2",
        "Boom",
        "order … of … failed",
        "mail.send",
        "mail",
    ]
    assert ojs("retry", "--search", found[0]["search"], "--yes").code == 0
    (left,) = Job.objects.filter(dead_letter=True)
    assert left.error["message"] == "the disk is full"
    with override_settings(OJS={"ADMIN_REDACT": ["message"]}):
        (hidden,) = ojs("dead-letters", "--json").json["groups"]
    assert (hidden["message"], hidden["jobs"]) == (None, 1)
