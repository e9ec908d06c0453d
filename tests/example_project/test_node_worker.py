"""A worker in another language, against a live server: the protocol as a stranger reads it."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import override_settings
from pytest_django.live_server_helper import LiveServer

import django_ojs as ojs
from django_ojs.extensions.checkpoints.models import Checkpoint
from django_ojs.models import Attempt, Job, Worker
from django_ojs.models.worker import Directive
from django_ojs.operations import beat, cancel, worker_activity
from django_ojs.spec.retry_policy import RetryPolicy
from django_ojs.worker.job_log import JobLog
from django_ojs.worker.maintenance import MaintenanceThread
from example_project.demo.node import unavailable_reason
from tests.cases import named
from tests.example_project.bad_line import bad_line
from tests.example_project.node import QUEUE, Node, wait_for
from tests.factories import push
from tests.model_factories import ApiKeyFactory
from tests.other_session import open_transaction

NODE_UNAVAILABLE = unavailable_reason()

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(bool(NODE_UNAVAILABLE), reason=NODE_UNAVAILABLE or "Node is installed"),
]

Start = Callable[..., Node]


@pytest.fixture
def start(live_server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start workers whose key is for their queue only, while time passes."""
    # A busy machine keeps a live worker silent for seconds. After three of its short intervals it
    # would count as dead.
    monkeypatch.setattr(worker_activity, "MISSED_BEATS", 1_000)
    # Nothing about authentication: the default asks for keys.
    with override_settings(OJS={}):
        yield from _starter(live_server)


def _starter(live_server: LiveServer) -> Iterator[Start]:
    _, key = ApiKeyFactory(scopes=["worker"], queues=[QUEUE])
    maintenance = MaintenanceThread("maintenance", JobLog())
    nodes: list[Node] = []

    def starter(*, url: str = live_server.url, key: str = key, **variables: str) -> Node:
        nodes.append(Node(url, key, **variables))
        return nodes[-1]

    yield starter
    for node in nodes:
        node.close()
    maintenance.close()


def job_of(type: str, *args: Any, max_attempts: int = 3, **values: Any) -> UUID:
    retry = RetryPolicy(
        max_attempts=max_attempts, initial_interval=timedelta(milliseconds=200), jitter=False
    )
    return push(type=type, args=list(args), queue=QUEUE, retry=retry, **values).pk


def becomes(key: UUID, state: str) -> Job:
    def look() -> Job | None:
        return Job.objects.filter(pk=key, state=state).first()

    job: Job = wait_for(look, f"the job is {Job.objects.get(pk=key).state}")
    return job


def continues_at_its_checkpoint(node: Node) -> None:
    key = job_of("test.rows", 5)
    job = becomes(key, "completed")
    assert (job.attempt, job.result) == (2, {"first": 3})
    assert not Checkpoint.objects.exists()


def is_done_and_its_result_kept(node: Node) -> None:
    key = job_of("test.echo", "Zażółć", {"n": 1})
    job = becomes(key, "completed")
    assert job.result == {"args": ["Zażółć", {"n": 1}], "attempt": 1}
    line = node.said("job completed", job_id=str(key))
    assert (line["job_type"], line["queue"], line["attempt"]) == ("test.echo", QUEUE, 1)
    assert "Zażółć" not in str(node.lines)


def gets_the_results_of_the_steps_before_it(node: Node) -> None:
    echo = [ojs.request("test.echo", [name], queue=QUEUE) for name in ("first", "left", "right")]
    last = ojs.request("test.results-before", queue=QUEUE)
    workflow = ojs.chain(echo[0], ojs.group(*echo[1:]), last).enqueue()
    wait_for(lambda: workflow.workflow().state == "completed", "the workflow is not completed")
    first, left, right = ({"args": [name], "attempt": 1} for name in ("first", "left", "right"))
    assert Job.objects.get(type="test.results-before").result == [first, [left, right]]


def test_jobs_run_side_by_side(start: Start) -> None:
    keys = [job_of("test.sleep", 20_000) for _ in range(5)]
    start(OJS_CONCURRENCY="4")
    wait_for(lambda: Job.objects.filter(state="active").count() == 4, "four are not active")
    assert Job.objects.filter(pk__in=keys, state="available").count() == 1


def is_tried_again_after_a_failure(node: Node) -> None:
    job = becomes(job_of("test.second"), "completed")
    assert (job.attempt, job.result) == (2, "at last")
    failed = Attempt.objects.get(job=job)
    assert failed.error is not None
    assert (failed.error["type"], failed.error["message"]) == ("TypeError", "not yet")


def is_not_tried_again_after_a_failure_for_good(node: Node) -> None:
    job = becomes(job_of("test.never"), "discarded")
    assert job.attempt == 1
    assert job.error is not None
    assert job.error["code"] == "NO_USE"


def test_a_job_that_takes_too_long_fails_and_frees_its_slot(start: Start) -> None:
    key = job_of("test.sleep", 60_000, timeout_ms=300, max_attempts=1)
    start(OJS_CONCURRENCY="1")
    job = becomes(key, "discarded")
    assert job.error is not None
    assert job.error["type"] == "timeout"
    becomes(job_of("test.echo"), "completed")


def is_given_back_unspent_if_its_type_is_unknown(node: Node) -> None:
    key = job_of("test.unheard-of")
    returned = wait_for(
        lambda: Job.objects.filter(pk=key, returned__gte=2).first(), "it is not given back"
    )
    assert returned.attempt - returned.returned <= 1
    # The error is reported once, however often the job is claimed.
    reported = Attempt.objects.get(job=key)
    assert reported.error is not None
    assert reported.error["type"] == "NoHandlerRegistered"
    assert node.process.poll() is None


def is_stopped_when_it_is_cancelled(node: Node) -> None:
    key = job_of("test.sleep", 60_000)
    becomes(key, "active")
    cancel.cancel(key)
    node.said("the claim is lost, the signal of the handler is aborted", job_id=str(key))
    becomes(job_of("test.echo"), "completed")
    assert Job.objects.get(pk=key).state == "cancelled"


#: What becomes of a job.
OUTCOMES = (
    continues_at_its_checkpoint,
    is_done_and_its_result_kept,
    gets_the_results_of_the_steps_before_it,
    is_tried_again_after_a_failure,
    is_not_tried_again_after_a_failure_for_good,
    is_stopped_when_it_is_cancelled,
    is_given_back_unspent_if_its_type_is_unknown,
)


def test_one_worker_does_jobs_of_every_outcome(start: Start) -> None:
    # One test, because to start a worker takes longer than most of its jobs.
    node = start()
    for outcome in OUTCOMES:
        with named(outcome.__name__):
            outcome(node)


@pytest.mark.skipif(connection.vendor == "sqlite", reason="it locks no single row")
def test_a_job_whose_row_is_locked_during_a_beat_is_not_lost(start: Start) -> None:
    node = start()
    key = job_of("test.sleep", 2_000)
    becomes(key, "active")

    def beat_after(before: Any) -> Any:
        beats = Worker.objects.filter(pk=node.id, beat_at__gt=before)
        return wait_for(lambda: beats.values_list("beat_at", flat=True).first(), "no heartbeat")

    with open_transaction(lambda: Job.primary.select_for_update().get(pk=key)) as commit:
        # The second heartbeat from now on begins while the row is locked.
        beat_after(beat_after(Worker.objects.get(pk=node.id).beat_at))
        commit()
    job = becomes(key, "completed")
    assert (job.attempt, job.result) == (1, "slept")


def test_quiet_and_running_again_on_the_servers_word(start: Start) -> None:
    node = start()
    becomes(job_of("test.echo"), "completed")
    running = job_of("test.sleep", 2_000)
    becomes(running, "active")

    beat.direct(node.id, Directive.QUIET)
    node.said("quiet: no more jobs are claimed", by="server")
    wait_for(lambda: Worker.objects.filter(pk=node.id, state="quiet"), "it does not say so")
    waiting = job_of("test.echo")
    becomes(running, "completed")
    assert Job.objects.get(pk=waiting).state == "available"

    beat.direct(node.id, Directive.RUNNING)
    becomes(waiting, "completed")


def test_quiet_and_running_again_by_signals(start: Start) -> None:
    node = start()
    assert node.id
    node.send(signal.SIGTSTP)
    wait_for(lambda: Worker.objects.filter(pk=node.id, state="quiet"), "it does not say so")
    waiting = job_of("test.echo")
    running = beats(node.id, 2)
    assert running == "quiet"
    assert Job.objects.get(pk=waiting).state == "available"
    node.send(signal.SIGCONT)
    becomes(waiting, "completed")


def beats(worker: str, number: int) -> str:
    """Wait for some beats, and return the state in the last one."""
    for _ in range(number):
        before = Worker.objects.get(pk=worker).seen_at
        wait_for(lambda: Worker.objects.get(pk=worker).seen_at > before, "it does not beat")  # noqa: B023  # called at once
    return Worker.objects.get(pk=worker).state


def test_terminate_on_the_servers_word_lets_the_running_job_end(start: Start) -> None:
    node = start()
    key = job_of("test.sleep", 1_000)
    becomes(key, "active")
    beat.direct(node.id, Directive.TERMINATE)
    assert node.wait() == 0
    assert Job.objects.get(pk=key).state == "completed"
    node.said("terminating", why="server", in_flight=1)


def test_sigterm_lets_the_running_job_end(start: Start) -> None:
    # Its only slot is taken, so no FETCH is on its way when the signal arrives.
    node = start(OJS_CONCURRENCY="1")
    key = job_of("test.sleep", 1_000)
    becomes(key, "active")
    node.send(signal.SIGTERM)
    node.said("terminating", why="SIGTERM")
    later = job_of("test.echo")
    assert node.wait() == 0
    assert Job.objects.get(pk=key).state == "completed"
    assert Job.objects.get(pk=later).state == "available"


@pytest.mark.parametrize("type", ["test.sleep", "test.stubborn"])
def test_after_the_grace_period_a_job_is_given_back_unspent(start: Start, type: str) -> None:
    node = start(OJS_GRACE_MS="300")
    key = job_of(type, 60_000)
    becomes(key, "active")
    node.send(signal.SIGTERM)
    assert node.wait() == 0
    job = Job.objects.get(pk=key)
    assert (job.state, job.attempt - job.returned) == ("available", 0)
    assert Attempt.objects.get(job=key).error["type"] == "shutdown"  # type: ignore[index]  # a run that was given back has one


def test_a_second_sigterm_does_not_wait(start: Start) -> None:
    node = start()
    key = job_of("test.sleep", 60_000)
    becomes(key, "active")
    node.send(signal.SIGTERM)
    node.said("terminating")
    node.send(signal.SIGTERM)
    assert node.wait() == 0
    assert Job.objects.get(pk=key).state == "available"


def test_a_job_that_arrives_after_the_grace_period_is_given_back_and_does_not_start(
    start: Start, live_server: LiveServer
) -> None:
    key = job_of("test.sleep", 60_000)
    with bad_line(live_server.url, fetch=["late"]) as line:
        node = start(url=line.url)
        becomes(key, "active")
        node.send(signal.SIGTERM)
        node.said("terminating")
        node.send(signal.SIGTERM)
        node.said("the grace period has ended", active_jobs=0)
        line.released.set()
        assert node.wait() == 0
    job = Job.objects.get(pk=key)
    assert (job.state, job.attempt - job.returned) == ("available", 0)


def test_the_job_of_a_killed_worker_is_done_by_another(start: Start) -> None:
    first = start()
    key = job_of("test.sleep", 3_000)
    becomes(key, "active")
    wait_for(lambda: Worker.objects.filter(pk=first.id, active_jobs=1), "no beat names it")
    first.send(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    Worker.objects.filter(pk=first.id).update(dead_after_ms=3 * 200)

    second = start()
    job = becomes(key, "completed")
    lost = Attempt.objects.get(job=key)
    assert (lost.worker_id, lost.outcome) == (first.id, "lost")
    assert job.attempt == 2
    second.said("job completed", job_id=str(key), attempt=2)


def test_a_wrong_key_ends_it_with_an_error_without_the_key(start: Start) -> None:
    node = start(key="ojs_nobody_secret")
    assert node.wait() == 1
    node.said("the server rejects these credentials, see OJS_API_KEY and OJS_QUEUES", status=401)
    assert "ojs_nobody_secret" not in str(node.lines)


def test_a_configuration_that_is_wrong_ends_it_with_an_error_that_names_the_variable(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "empty.mjs").write_text("export const handler = {};\n")
    missing, empty = str(tmp_path / "missing.mjs"), str(tmp_path / "empty.mjs")
    for message, variables in (
        ("there is no file at OJS_HANDLERS", {"OJS_HANDLERS": missing}),
        ('the module at OJS_HANDLERS has no export "handlers"', {"OJS_HANDLERS": empty}),
        ("OJS_CONCURRENCY must be a number above 0", {"OJS_CONCURRENCY": "ten"}),
    ):
        node = start(**variables)
        assert node.wait() == 1
        (line,) = node.lines
        assert (line["level"], line["message"]) == ("error", message)
        assert line.get("file", missing) == variables.get("OJS_HANDLERS", missing)


def test_a_server_that_is_not_there_is_tried_again(start: Start, unused_port: int) -> None:
    node = start(url=f"http://127.0.0.1:{unused_port}")
    node.said("trying again", operation="fetch", error="ECONNREFUSED")
    node.send(signal.SIGTERM)
    assert node.wait() == 0


def test_an_outcome_whose_response_is_lost_is_sent_again_and_nothing_happens_twice(
    start: Start, live_server: LiveServer
) -> None:
    keys = [job_of("test.echo"), job_of("test.never")]
    with bad_line(live_server.url, ack=["lost", "busy"], nack=["busy", "lost"]) as line:
        node = start(url=line.url)
        for key in keys:
            node.said("the outcome was not accepted", job_id=str(key), error="409 conflict")
        node.send(signal.SIGTERM)
        assert node.wait() == 0
    assert (line.asked["ack"], line.asked["nack"]) == (3, 3)
    assert [Job.objects.get(pk=key).state for key in keys] == ["completed", "discarded"]
    assert Attempt.objects.filter(job__in=keys).count() == 1
    node.said("trying again", error="503")


def test_beats_that_fail_change_nothing(start: Start, live_server: LiveServer) -> None:
    with bad_line(live_server.url, heartbeat=["busy", "busy", "lost"]) as line:
        node = start(url=line.url)
        becomes(job_of("test.echo"), "completed")
        wait_for(lambda: line.asked["heartbeat"] > 4, "it does not beat")
        node.send(signal.SIGTERM)
        assert node.wait() == 0
    node.said("the first beat failed")
    node.said("a beat failed")


def test_jobs_whose_fetch_was_not_heard_are_back_when_their_lease_ends(
    start: Start, live_server: LiveServer
) -> None:
    key = job_of("test.echo")
    with bad_line(live_server.url, fetch=["lost"]) as line:
        node = start(url=line.url, OJS_VISIBILITY_MS="1000")
        job = becomes(key, "completed")
        node.close()
    assert job.attempt == 2
    assert Attempt.objects.get(job=key).outcome == "lapsed"


@pytest.fixture
def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port
