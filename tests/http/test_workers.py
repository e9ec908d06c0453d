"""FETCH, ACK, FAIL and BEAT, over HTTP."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import InterfaceError
from django.db.models.functions import Now

from django_ojs.http.views import workers
from django_ojs.models import Attempt, Job, Worker
from django_ojs.models.worker import Directive
from django_ojs.operations import beat, worker_activity
from django_ojs.operations.maintenance import timeouts
from django_ojs.operations.workers.rescue import lapse
from django_ojs.spec import ids
from django_ojs.storage import transitions
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.dialects.rows import ClaimRequest
from tests.cases import together
from tests.factories import HOUR, age, ids_against_time, in_state, jobs, read, snapshot
from tests.http.api import Api, make_key, state_of
from tests.http.test_jobs import TIMESTAMP

pytestmark = pytest.mark.django_db

api = Api()
ERROR = {"type": "Boom", "message": "it broke"}
OUTCOMES: dict[str, dict[str, Any]] = {"ack": {}, "nack": {"error": ERROR}}
SLOW_RETRY = {
    "max_attempts": 3,
    "initial_interval": "PT1H",
    "max_interval": "PT1H",
    "jitter": False,
}


class TestFetch:
    def test_an_empty_queue_returns_an_empty_array(self) -> None:
        assert api.post("workers/fetch", {"queues": ["default"]}).ok() == {"jobs": []}

    @pytest.mark.both
    def test_a_claimed_job_is_active_and_counted(self) -> None:
        key = api.push(args=[{"a": 1}], meta={"m": 1})["id"]
        (job,) = api.fetch()
        assert (job["id"], job["state"], job["attempt"]) == (key, "active", 1)
        assert (job["args"], job["meta"]) == ([{"a": 1}], {"m": 1})
        assert TIMESTAMP(job["started_at"])
        assert api.fetch() == []
        only_here = {"run": 1, "timeout_ms": 30 * 60_000, "timeout": 30 * 60}
        assert job == api.info(key) | only_here

    @pytest.mark.parametrize(
        "broken",
        [(worker_activity, "after_fetch"), (Attempt, "errors_of"), (workers, "_render_claimed")],
        ids=["worker", "errors", "rendering"],
    )
    @pytest.mark.parametrize("error", [InterfaceError, RuntimeError])
    def test_a_job_whose_response_cannot_be_made_is_given_back(
        self, broken: tuple[Any, str], error: type[Exception], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(*args: Any, **values: Any) -> Any:
            raise error("the connection broke")

        key = api.push()["id"]
        with monkeypatch.context() as patch:
            patch.setattr(*broken, fails)
            body = {"queues": ["default"], "worker_id": "worker-a"}
            answer = Api(raising=False).post("workers/fetch", body)
        assert answer.status == (503 if error is InterfaceError else 500)
        stored = jobs().get(pk=key)
        assert (stored.state, stored.spent) == ("available", 0)

    def test_a_worker_that_is_declared_dead_before_its_claim_is_known_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        body = {"queues": ["default"], "worker_id": "worker-a"}
        api.post("workers/fetch", body).ok()
        Worker.objects.update(seen_at=Now() - HOUR)
        key, real = api.push()["id"], transitions.claim

        def claim(request: ClaimRequest) -> list[Claimed]:
            Worker.objects.all().delete()
            return real(request)

        monkeypatch.setattr(transitions, "claim", claim)
        assert [job["id"] for job in api.post("workers/fetch", body).ok()["jobs"]] == [key]
        # Without its row, its end would not be seen.
        assert Worker.objects.get().pk == "worker-a"

    def test_a_job_has_the_timeout_that_ends_its_run(self, settings: Any) -> None:
        settings.OJS = {**settings.OJS, "DEFAULT_TIMEOUT": 2.5}
        own = api.push(timeout_ms=4_000)["id"]
        (job,) = api.fetch()
        assert (job["id"], job["timeout_ms"], job["timeout"]) == (own, 4_000, 4)
        api.push()
        (job,) = api.fetch()
        assert job["timeout_ms"] == 2_500
        assert "timeout" not in job
        assert "timeout_ms" not in api.info(job["id"])

    def test_the_total_timeout_of_a_job_ends_its_run_too(self) -> None:
        key = api.push(total_timeout=60)["id"]
        (job,) = api.fetch()
        assert 50_000 < job["timeout_ms"] <= 60_000
        assert (job["total_timeout"], "timeout_ms" in api.info(key)) == (60, False)

    def test_a_run_that_a_producer_sends_is_ignored(self) -> None:
        key = api.push(run=7)["id"]
        assert "run" not in api.info(key)
        assert [job["run"] for job in api.fetch()] == [1]

    @pytest.mark.both
    def test_queues_go_strictly_from_left_to_right(self) -> None:
        low = api.push(queue="b", priority=100)["id"]
        high = [api.push(queue="a")["id"] for _ in range(2)]
        found = api.post("workers/fetch", {"queues": ["a", "b"], "count": 3}).ok()["jobs"]
        assert [job["id"] for job in found] == [*high, low]

    def test_the_order_is_that_of_becoming_available_and_not_of_ids(self) -> None:
        made = [str(key) for key in ids_against_time(4)]
        late = api.push(id=made[0], pending=True)["id"]
        for key in made[1:]:
            api.push(id=key)
        api.post(f"jobs/{late}/activate").ok()
        assert [job["id"] for job in api.fetch(count=9)] == [*made[1:], late]

    def test_the_count_bounds_what_is_handed_out(self) -> None:
        for _ in range(3):
            api.push()
        assert [len(api.fetch(count=2)) for _ in range(3)] == [2, 1, 0]

    @together("bad", [0, -1, 1_001, 1.0, True, "1", [1], {}], undo=True)
    def test_a_bad_count_is_rejected(self, bad: Any) -> None:
        response = api.post("workers/fetch", {"queues": ["a"], "count": bad})
        assert "count" in response.error(400, "invalid_request", field="count")["message"]

    @pytest.mark.once
    @pytest.mark.requirement("CORE-7.2-1")
    @together("bad", [None, [], "default", 1, {}, [1], [None], ["A"], [""]], undo=True)
    def test_bad_queues_are_rejected(self, bad: Any) -> None:
        response = api.post("workers/fetch", {"queues": bad})
        assert "queues" in response.error(400, "invalid_request")["message"]

    @pytest.mark.once
    @together("bad", ["", "x" * 256, "a\nb", 1, [], True], undo=True)
    def test_a_bad_worker_id_is_rejected(self, bad: Any) -> None:
        response = api.post("workers/fetch", {"queues": ["a"], "worker_id": bad})
        assert "worker_id" in response.error(400, "invalid_request", field="worker_id")["message"]

    @together("bad", [0, -1, 2**31, "PT1S", True, 1.5], undo=True)
    def test_a_bad_visibility_timeout_is_rejected(self, bad: Any) -> None:
        response = api.post("workers/fetch", {"queues": ["a"], "visibility_timeout_ms": bad})
        response.error(400, "invalid_request", field="visibility_timeout_ms")

    def test_the_visibility_timeout_is_the_one_asked_for_the_jobs_own_or_the_default(self) -> None:
        def lease(job: Any) -> int:
            row = read(UUID(job["id"]))
            assert row.lease_until is not None
            assert row.started_at is not None
            return round((row.lease_until - row.started_at).total_seconds())

        api.push(queue="a", visibility_timeout_ms=60_000)
        assert lease(api.fetch("a", visibility_timeout_ms=9_000)[0]) == 9
        api.push(queue="b", visibility_timeout_ms=60_000)
        assert lease(api.fetch("b")[0]) == 60
        api.push(queue="c")
        assert lease(api.fetch("c")[0]) == 120

    def test_what_is_due_counts_as_available(self) -> None:
        job = api.active(retry=SLOW_RETRY)
        api.post("workers/nack", {"job_id": job["id"], "error": ERROR}).ok()
        assert api.fetch() == []
        age(UUID(job["id"]), HOUR)
        (again,) = api.fetch()
        assert (again["id"], again["attempt"]) == (job["id"], 2)
        assert [entry["type"] for entry in again["errors"]] == ["Boom"]


class TestAck:
    @pytest.mark.parametrize("by_path", [False, True])
    def test_a_job_is_completed_with_its_result(self, by_path: bool) -> None:
        key = api.active()["id"]
        body = {"result": {"rows": [1, None]}}
        response = (
            api.post(f"jobs/{key}/ack", body)
            if by_path
            else api.post("workers/ack", {"job_id": key, **body})
        ).ok()
        job = response.pop("job")
        assert TIMESTAMP(response["completed_at"])
        assert response == {
            "acknowledged": True,
            "id": key,
            "job_id": key,
            "state": "completed",
            "completed_at": job["completed_at"],
        }
        assert job == api.info(key)
        assert job["result"] == {"rows": [1, None]}

    @together("result", [None, 0, False, "", [], {}, "text", 1.5, [[1]]], undo=True)
    def test_any_json_is_a_result(self, result: Any) -> None:
        key = api.active()["id"]
        api.post("workers/ack", {"job_id": key, "result": result}).ok()
        assert api.info(key).get("result") == result

    def test_the_path_alone_is_enough(self) -> None:
        key = api.active()["id"]
        assert api.post(f"jobs/{key}/ack").ok()["state"] == "completed"

    def test_a_result_that_json_cannot_carry_is_rejected(self) -> None:
        key = api.active()["id"]
        deep = b'{"job_id": "%s", "result": %s}' % (key.encode(), b"[" * 65 + b"]" * 65)
        assert "result" in api.post("workers/ack", deep).error(400, "invalid_request")["message"]
        assert state_of(key) == "active"


class TestFail:
    @pytest.mark.requirement("CORE-8.3-1")
    def test_a_job_with_attempts_left_waits_for_the_next_one(self) -> None:
        key = api.active(retry=SLOW_RETRY)["id"]
        response = api.post("workers/nack", {"job_id": key, "error": ERROR}).ok()
        assert (
            response.items()
            >= {
                "id": key,
                "job_id": key,
                "state": "retryable",
                "attempt": 1,
                "max_attempts": 3,
                "retry_delay_ms": 3_600_000,
            }.items()
        )
        assert TIMESTAMP(response["next_attempt_at"])
        assert "discarded_at" not in response
        assert response["job"].items() >= api.info(key).items()
        assert response["job"]["error"]["message"] == "it broke"

    def test_the_last_attempt_discards(self) -> None:
        key = api.active(retry={"max_attempts": 1})["id"]
        response = api.post(f"jobs/{key}/nack", {"error": ERROR}).ok()
        assert response.items() >= {"state": "discarded", "attempt": 1, "max_attempts": 1}.items()
        assert TIMESTAMP(response["discarded_at"])
        assert not response.keys() & {"next_attempt_at", "retry_delay_ms"}

    @pytest.mark.requirement("CORE-14-4")
    @pytest.mark.parametrize("extra", [{}, {"requeue": True}])
    def test_a_backtrace_is_stored_only_where_the_settings_allow_it(
        self, settings: Any, extra: dict[str, Any]
    ) -> None:
        error = ERROR | {"backtrace": ["app.go:7 in charge"]}
        kept, stripped = api.active()["id"], api.active()["id"]
        api.post(f"jobs/{kept}/nack", {"error": error, **extra}).ok()
        settings.OJS = {**settings.OJS, "BACKTRACES": False}
        api.post(f"jobs/{stripped}/nack", {"error": error, **extra}).ok()
        for key, found in ((kept, ["app.go:7 in charge"]), (stripped, None)):
            job = Job.objects.get(pk=key)
            run = job.attempts.get()
            assert job.error.get("backtrace") == found
            assert run.error.get("backtrace") == found

    def test_the_code_of_the_binding_is_the_type_of_core(self) -> None:
        key = api.active(retry={"non_retryable_errors": ["invalid_card"]})["id"]
        error = {"code": "invalid_card", "message": "no", "details": {"a": [1]}, "retryable": True}
        response = api.post("workers/nack", {"job_id": key, "error": error}).ok()
        assert response["state"] == "discarded"
        assert (
            response["job"]["error"].items()
            >= {"type": "invalid_card", "message": "no", "details": {"a": [1]}}.items()
        )

    def test_what_is_not_retryable_is_discarded(self) -> None:
        key = api.active()["id"]
        error = ERROR | {"retryable": False}
        assert (
            api.post("workers/nack", {"job_id": key, "error": error}).ok()["state"] == "discarded"
        )

    @pytest.mark.once
    @pytest.mark.requirement("CORE-7.4-2", "CORE-8-1")
    @together(
        "bad",
        [
            *(None, "text", 1, [], {}, {"message": "m"}),
            *({"type": 1, "message": "m"}, {"type": "B", "message": 1}),
            *(ERROR | {"retryable": "no"}, ERROR | {"details": []}),
        ],
        undo=True,
    )
    def test_a_bad_error_is_rejected_and_changes_nothing(self, bad: Any) -> None:
        key = api.active()["id"]
        response = api.post("workers/nack", {"job_id": key, "error": bad})
        assert "error" in response.error(400, "invalid_request")["message"]
        assert state_of(key) == "active"

    def test_a_requeue_gives_the_job_back_at_once_and_spends_no_attempt(self) -> None:
        key = api.active(retry={"max_attempts": 1})["id"]
        for _ in range(3):
            response = api.post("workers/nack", {"job_id": key, "requeue": True}).ok()
            assert (response["state"], response["id"]) == ("available", key)
            assert [job["id"] for job in api.fetch()] == [key]
        final = api.post("workers/nack", {"job_id": key, "requeue": False, "error": ERROR}).ok()
        assert final["state"] == "discarded"

    def test_a_requeue_keeps_the_error_it_was_given(self) -> None:
        key = api.active()["id"]
        api.post("workers/nack", {"job_id": key, "requeue": True, "error": ERROR}).ok()
        assert api.info(key)["error"]["type"] == "Boom"

    @pytest.mark.parametrize("bad", [1, "true", [], {}])
    def test_requeue_is_a_boolean(self, bad: Any) -> None:
        key = api.active()["id"]
        response = api.post("workers/nack", {"job_id": key, "requeue": bad, "error": ERROR})
        response.error(400, "invalid_request", field="requeue")


@pytest.mark.parametrize("what", OUTCOMES)
class TestTheClaim:
    """ACK and FAIL under a claim: what is sent must match, what is left out is not checked."""

    def send(self, what: str, key: str, **claim: Any) -> Any:
        return api.post(f"workers/{what}", {"job_id": key, **OUTCOMES[what], **claim})

    @pytest.mark.requirement("CORE-7.3-1", "CORE-7.4-1")
    @pytest.mark.parametrize(
        "state", ["available", "scheduled", "pending", "completed", "discarded"]
    )
    def test_a_job_that_is_not_active_is_a_conflict(self, what: str, state: str) -> None:
        job = in_state(state)
        before = snapshot(job.pk)
        self.send(what, str(job.pk)).error(
            409, "conflict", job_id=str(job.pk), current_state=state, expected_state="active"
        )
        assert snapshot(job.pk) == before

    def test_a_conflict_says_whether_the_first_request_succeeded(self, what: str) -> None:
        done, lost = api.active(worker_id="a"), api.active(worker_id="a")
        self.send(what, done["id"], worker_id="a", run=done["run"]).ok()
        repeated = self.send(what, done["id"], worker_id="a", run=done["run"])
        state = "completed" if what == "ack" else "retryable"
        repeated.error(409, "conflict", current_state=state, current_run=done["run"])

        age(UUID(lost["id"]), HOUR)
        lapse()
        repeated = self.send(what, lost["id"], worker_id="a", run=lost["run"])
        repeated.error(409, "conflict", current_state="available", current_run=lost["run"])
        (again,) = api.fetch(worker_id="b")
        assert again["id"] == lost["id"]
        self.send(what, again["id"], worker_id="b", run=again["run"]).ok()
        # The other worker's outcome is not that of the first request.
        repeated = self.send(what, lost["id"], worker_id="a", run=lost["run"])
        repeated.error(409, "conflict", current_state=state, current_run=again["run"])

    @pytest.mark.requirement("CORE-7.3-2")
    def test_the_ack_or_fail_of_another_worker_is_a_conflict(self, what: str) -> None:
        key = api.active(worker_id="a")["id"]
        self.send(what, key, worker_id="b").error(409, "conflict", current_state="active")
        assert state_of(key) == "active"
        self.send(what, key, worker_id="a").ok()

    def test_an_ack_or_fail_of_an_older_attempt_is_a_conflict(self, what: str) -> None:
        first = api.active(worker_id="a", visibility_timeout_ms=1_000)
        age(UUID(first["id"]), HOUR)
        lapse()
        (second,) = api.fetch(worker_id="a")
        assert (second["id"], second["attempt"]) == (first["id"], 2)
        self.send(what, first["id"], worker_id="a", attempt=1).error(409, "conflict")
        assert state_of(first["id"]) == "active"
        self.send(what, first["id"], worker_id="a", attempt=2).ok()

    def test_a_claim_without_a_worker_is_acknowledged_without_one(self, what: str) -> None:
        key = api.active()["id"]
        self.send(what, key, worker_id="a").error(409, "conflict")
        self.send(what, key, attempt=1).ok()

    @pytest.mark.parametrize("claim", [{"attempt": 1}, {"run": 1}])
    def test_a_worker_may_name_itself_for_a_claim_without_one(
        self, what: str, claim: dict[str, int]
    ) -> None:
        key = api.active()["id"]
        other = {name: value + 1 for name, value in claim.items()}
        self.send(what, key, worker_id="a", **other).error(409, "conflict")
        self.send(what, key, worker_id="a", **claim).ok()

    def test_once_a_beat_names_the_worker_no_other_one_has_the_claim(self, what: str) -> None:
        key = api.active()["id"]
        api.post("workers/heartbeat", {"worker_id": "a", "active_jobs": [key]}).ok()
        self.send(what, key, worker_id="b", attempt=1, run=1).error(409, "conflict")
        self.send(what, key, worker_id="a", attempt=1, run=1).ok()

    @pytest.mark.parametrize("lost", ["lease", "timeout"])
    def test_a_lost_run_changes_nothing_after_a_retry_by_hand(self, what: str, lost: str) -> None:
        # The same worker has the job again, and `attempt` is 1 again.
        first = api.active(worker_id="a", retry={"max_attempts": 1}, timeout_ms=1_000)
        key = first["id"]
        age(UUID(key), HOUR)
        assert (lapse() if lost == "lease" else timeouts.enforce()) == 1
        api.post(f"dead-letter/{key}/retry").ok()
        (second,) = api.fetch(worker_id="a")
        assert (second["id"], second["attempt"]) == (key, first["attempt"])
        assert (first["run"], second["run"]) == (1, 2)
        before = snapshot(UUID(key))
        stale = {"worker_id": "a", "attempt": 1, "run": first["run"]}
        self.send(what, key, **stale).error(409, "conflict", current_state="active")
        self.send("nack", key, error=ERROR, requeue=True, **stale).error(409, "conflict")
        progress = {"job_id": key, "progress": 0.5}
        api.post("workers/progress", {**progress, **stale}).error(409, "conflict")
        api.put(f"jobs/{key}/progress", {**progress, **stale}).error(409, "conflict")
        saved = {"state": {"n": 1}}
        api.post(f"jobs/{key}/checkpoint", {**saved, **stale}).error(409, "conflict")
        assert snapshot(UUID(key)) == before
        own = {"worker_id": "a", "attempt": 1, "run": second["run"]}
        api.post("workers/progress", {**progress, **own}).ok()
        api.post(f"jobs/{key}/checkpoint", {**saved, **own}).ok()
        self.send(what, key, **own).ok()

    @pytest.mark.once
    @pytest.mark.parametrize("name", ["attempt", "run"])
    @pytest.mark.parametrize("bad", [-1, 1.0, "1", True, 2**31, [1]])
    def test_a_bad_number_of_a_claim_is_rejected(self, what: str, name: str, bad: Any) -> None:
        self.send(what, api.active()["id"], **{name: bad}).error(400, "invalid_request", field=name)

    @pytest.mark.once
    @pytest.mark.parametrize("bad", [1, "", "a\nb", "\u0000x", [], True, "x" * 256])
    def test_a_bad_worker_id_is_rejected(self, what: str, bad: Any) -> None:
        self.send(what, api.active()["id"], worker_id=bad).error(
            400, "invalid_payload" if bad == "\u0000x" else "invalid_request"
        )

    def test_a_job_that_is_not_there_is_not_found(self, what: str) -> None:
        self.send(what, str(ids.uuid7())).error(404, "not_found")
        api.post(f"jobs/x/{what}", OUTCOMES[what]).error(404, "not_found")

    @pytest.mark.once
    @pytest.mark.parametrize("bad", [None, "", "x", 1, [], {}, "0" * 36])
    def test_what_is_no_job_id_is_rejected(self, what: str, bad: Any) -> None:
        self.send(what, bad).error(400, "invalid_request")


class TestBeat:
    def test_a_beat_registers_the_worker_and_extends_what_it_holds(self) -> None:
        job = api.active(worker_id="w", visibility_timeout_ms=60_000)
        age(UUID(job["id"]), timedelta(seconds=30))
        before = read(UUID(job["id"])).lease_until
        response = api.post(
            "workers/heartbeat", {"worker_id": "w", "active_jobs": [job["id"]]}
        ).ok()
        assert response["state"] == "running"
        assert response["jobs_extended"] == [job["id"]]
        assert response["jobs_lost"] == []
        assert TIMESTAMP(response["server_time"])
        after = read(UUID(job["id"])).lease_until
        assert before is not None
        assert after is not None
        assert timedelta(seconds=25) < after - before < timedelta(seconds=90)

    def test_an_extension_never_shortens(self) -> None:
        job = api.active(worker_id="w")
        before = read(UUID(job["id"])).lease_until
        api.post(
            "workers/heartbeat",
            {"worker_id": "w", "active_jobs": [job["id"]], "visibility_timeout_ms": 1},
        ).ok()
        assert read(UUID(job["id"])).lease_until == before

    def test_only_what_the_worker_holds_is_extended(self) -> None:
        mine = api.active(worker_id="w")["id"]
        theirs = api.active(worker_id="other")["id"]
        nobodys = str(ids.uuid7())
        before = read(UUID(theirs)).lease_until
        response = api.post(
            "workers/heartbeat",
            {
                "worker_id": "w",
                "active_jobs": [mine, theirs, nobodys],
                "visibility_timeout_ms": 7_200_000,
            },
        ).ok()
        assert response["jobs_extended"] == [mine]
        assert response["jobs_lost"] == sorted([theirs, nobodys])
        assert read(UUID(theirs)).lease_until == before

    def test_the_response_to_a_beat_names_a_cancelled_job(self) -> None:
        key = api.active(worker_id="w")["id"]
        api.delete(f"jobs/{key}").ok()
        response = api.post("workers/heartbeat", {"worker_id": "w", "active_jobs": [key]}).ok()
        assert (response["jobs_extended"], response["jobs_lost"]) == ([], [key])
        api.post("workers/ack", {"job_id": key, "worker_id": "w"}).error(409, "conflict")
        assert state_of(key) == "cancelled"

    @pytest.mark.parametrize("directive", [Directive.QUIET, Directive.TERMINATE])
    def test_the_response_carries_the_directive(self, directive: Directive) -> None:
        assert api.post("workers/heartbeat", {"worker_id": "w"}).ok()["state"] == "running"
        assert beat.direct("w", directive)
        assert api.post("workers/heartbeat", {"worker_id": "w"}).ok()["state"] == directive
        api.push()
        assert api.fetch(worker_id="w") == []

    def test_what_a_worker_says_of_itself_is_kept(self) -> None:
        api.post(
            "workers/heartbeat",
            {
                "worker_id": "w",
                "hostname": "h1",
                "pid": 2**22,
                "queues": ["a", "b"],
                "labels": ["gpu"],
                "concurrency": 8,
                "version": "2.1",
                "started_at": "2026-01-01T00:00:00Z",
            },
        ).ok()
        row = Worker.objects.get(pk="w")
        assert (row.hostname, row.pid, row.queues, row.labels) == ("h1", 2**22, ["a", "b"], ["gpu"])
        assert (row.concurrency, row.version) == (8, "2.1")
        assert row.started_at == datetime.fromisoformat("2026-01-01T00:00:00+00:00")

    @pytest.mark.once
    @together(
        ("name", "bad"),
        [
            *(("worker_id", bad) for bad in (None, "", "x" * 256, 1, [])),
            *(("active_jobs", bad) for bad in (-1, 1.5, "x", True, [1], ["x"], {})),
            *(("active_job_ids", bad) for bad in ("x", 1, [None], ["x"])),
            *(("visibility_timeout_ms", bad) for bad in (0, -1, "1", 2**31)),
            *(("heartbeat_interval_ms", bad) for bad in (0, -1, "1", 2**31, True, "PT5S")),
            *(("state", bad) for bad in ("dead", 1, [], "RUNNING")),
            *(("hostname", bad) for bad in ("x" * 256, "a\nb", 1)),
            *(("pid", bad) for bad in (-1, "1", 1.0)),
            *(("queues", bad) for bad in ("a", [1], {}, ["x" * 300], ["a"] * 2_000)),
            *(("labels", bad) for bad in ("a", [1], ["a\nb"], ["x" * 300], ["a"] * 2_000)),
            *(("concurrency", bad) for bad in (-1, 2**31, "8")),
            *(("version", bad) for bad in ("x" * 65, 1)),
            *(("started_at", bad) for bad in ("now", 1, "2026-01-01T00:00:00")),
        ],
        undo=True,
    )
    def test_a_bad_field_is_rejected_by_name(self, name: str, bad: Any) -> None:
        error = api.post("workers/heartbeat", {"worker_id": "w"} | {name: bad})
        assert name in error.error(400, "invalid_request")["message"]

    def test_what_is_not_known_is_ignored(self) -> None:
        api.post("workers/heartbeat", {"worker_id": "w", "x": 1, "memory_bytes": 2**40}).ok()

    def test_the_other_name_of_the_route_does_the_same(self) -> None:
        assert api.post("workers/beat", {"worker_id": "w"}).ok()["state"] == "running"


@pytest.mark.both
def test_a_visibility_timeout_that_ends_makes_the_job_available_with_its_history() -> None:
    key = api.active(worker_id="w", visibility_timeout_ms=1_000)["id"]
    age(UUID(key), HOUR)
    lapse()
    job = api.info(key)
    assert (job["state"], job["attempt"]) == ("available", 1)
    assert [entry["type"] for entry in job["errors"]] == ["visibility_timeout"]


def test_a_visibility_timeout_that_ends_with_no_attempt_left_discards() -> None:
    key = api.active(visibility_timeout_ms=1_000, retry={"max_attempts": 1})["id"]
    age(UUID(key), HOUR)
    lapse()
    assert api.info(key)["state"] == "discarded"


class TestAKeyForOneQueue:
    """A key that is confined to some queues works there and nowhere else."""

    @pytest.fixture(autouse=True)
    def _closed(self, settings: Any) -> None:
        settings.OJS = {
            "HTTP_AUTHENTICATION": ["django_ojs.http.authentication.ApiKeyAuthentication"]
        }
        self.mine = Api(make_key("admin", queues=("mine",)))
        self.all = Api(make_key("admin"))

    def test_it_may_do_everything_in_its_queue(self) -> None:
        job = self.mine.active(queue="mine", worker_id="w")
        body = {"worker_id": "w", "active_jobs": [job["id"]]}
        assert self.mine.post("workers/heartbeat", body).ok()["jobs_extended"] == [job["id"]]
        self.mine.post("workers/ack", {"job_id": job["id"]}).ok()
        assert self.mine.info(job["id"])["state"] == "completed"
        assert self.mine.post("jobs/batch", {"jobs": [{"type": "a", "args": [], "queue": "mine"}]})

    def test_it_pushes_nothing_elsewhere(self) -> None:
        body = {"type": "a", "args": []}
        self.mine.post("jobs", body).error(403, "PERMISSION_DENIED")
        both = [body | {"queue": "mine"}, body]
        self.mine.post("jobs/batch", {"jobs": both}).error(403, "PERMISSION_DENIED", index=1)
        assert jobs().count() == 0

    def test_it_fetches_nothing_elsewhere_and_takes_nothing_with_a_mixed_list(self) -> None:
        self.all.push(queue="mine")
        for queues in (["other"], ["mine", "other"]):
            self.mine.post("workers/fetch", {"queues": queues}).error(403, "PERMISSION_DENIED")
        assert len(self.mine.fetch("mine")) == 1

    def test_it_touches_no_job_of_another_queue(self) -> None:
        job = self.all.active(queue="other", worker_id="w")["id"]
        before = snapshot(UUID(job))
        denied = [
            self.mine.get(f"jobs/{job}"),
            self.mine.delete(f"jobs/{job}"),
            self.mine.post(f"jobs/{job}/cancel"),
            self.mine.post(f"jobs/{job}/activate"),
            self.mine.post(f"jobs/{job}/ack"),
            self.mine.post(f"jobs/{job}/nack", {"error": ERROR}),
            self.mine.post("workers/ack", {"job_id": job}),
            self.mine.post("workers/nack", {"job_id": job, "error": ERROR}),
            self.mine.post("workers/nack", {"job_id": job, "requeue": True}),
            self.mine.post("workers/heartbeat", {"worker_id": "w", "active_jobs": [job]}),
        ]
        for response in denied:
            response.error(403, "PERMISSION_DENIED")
        assert snapshot(UUID(job)) == before
