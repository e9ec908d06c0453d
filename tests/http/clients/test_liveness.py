"""Workers over HTTP live as long as they show it, and their jobs are found when they do not."""

from __future__ import annotations

import pytest
from pytest_django.live_server_helper import LiveServer

from django_ojs.models import Worker
from tests.http.clients.wire import Wire, pass_time

pytestmark = pytest.mark.django_db(transaction=True)

WORKER = "worker_019414d4-aaaa-7000-8000-111111111111"


@pytest.fixture
def wire(live_server: LiveServer) -> Wire:
    return Wire(live_server.url)


@pytest.mark.requirement("L1-HB-001")
class TestHeartbeats:
    """ojs-core §7.5: every 15 seconds is recommended, three missed ones are death."""

    def start(self, wire: Wire, **beat: object) -> str:
        """Claim a job for two minutes, and beat once."""
        key = wire.push()
        wire.fetch(worker_id=WORKER, visibility_timeout_ms=120_000)
        wire.beat(worker_id=WORKER, active_jobs=[key], **beat)
        return key

    @pytest.mark.both
    def test_a_worker_that_beats_every_15_seconds_keeps_its_job(self, wire: Wire) -> None:
        key = self.start(wire)
        for _ in range(6):
            pass_time(15.5)
            answer = wire.beat(worker_id=WORKER, active_jobs=[key])
            assert (answer["jobs_extended"], answer["jobs_lost"]) == ([key], [])
        assert wire.fetch(worker_id="other") == []

    def test_without_an_interval_it_is_dead_after_45_seconds(self, wire: Wire) -> None:
        key = self.start(wire)
        pass_time(38)
        assert wire.state(key) == "active"
        pass_time(8)
        assert wire.state(key) == "available"
        assert not Worker.objects.exists()

    def test_an_interval_that_it_keeps_is_seen(self, wire: Wire) -> None:
        key = self.start(wire)
        for seconds in (30, 30):
            pass_time(seconds)
            wire.beat(worker_id=WORKER, active_jobs=[key])
        pass_time(80)
        assert wire.state(key) == "active"
        pass_time(12)
        assert wire.state(key) == "available"

    def test_an_extra_beat_is_no_shorter_interval(self, wire: Wire) -> None:
        key = self.start(wire)
        pass_time(40)
        for _ in range(2):
            wire.beat(worker_id=WORKER, active_jobs=[key])
        pass_time(50)
        assert wire.beat(worker_id=WORKER, active_jobs=[key])["jobs_extended"] == [key]

    @pytest.mark.parametrize(("interval", "alive", "dead"), [(4_000, 8, 5), (35_000, 95, 11)])
    def test_an_interval_that_it_sends_counts_from_then_on(
        self, wire: Wire, interval: int, alive: int, dead: int
    ) -> None:
        key = self.start(wire, heartbeat_interval_ms=interval)
        wire.beat(worker_id=WORKER, active_jobs=[key])
        pass_time(alive)
        assert wire.state(key) == "active"
        pass_time(dead)
        assert wire.state(key) == "available"


@pytest.mark.requirement("L1-VT-001", "L1-VT-002")
class TestLeases:
    """worker-protocol §5, http-binding §7.6: a claim keeps the length it was made with."""

    def test_a_beat_extends_by_the_length_that_the_fetch_named(self, wire: Wire) -> None:
        key = wire.push()
        wire.fetch(worker_id=WORKER, visibility_timeout_ms=20_000)
        for _ in range(3):
            pass_time(12)
            assert wire.beat(worker_id=WORKER, active_jobs=[key])["jobs_extended"] == [key]
        pass_time(21)
        assert wire.state(key) == "available"

    def test_a_length_in_a_beat_holds_for_that_beat(self, wire: Wire) -> None:
        key = wire.push()
        wire.fetch(worker_id=WORKER, visibility_timeout_ms=10_000)
        wire.beat(worker_id=WORKER, active_jobs=[key], visibility_timeout_ms=40_000)
        pass_time(35)
        wire.beat(worker_id=WORKER, active_jobs=[key])
        pass_time(11)
        assert wire.state(key) == "available"

    def test_the_length_of_the_job_holds_if_the_fetch_names_none(self, wire: Wire) -> None:
        key = wire.push(options={"visibility_timeout_ms": 20_000})
        wire.fetch(worker_id=WORKER)
        pass_time(12)
        wire.beat(worker_id=WORKER, active_jobs=[key])
        pass_time(12)
        assert wire.state(key) == "active"
        pass_time(9)
        assert wire.state(key) == "available"

    def test_a_progress_report_extends_by_the_same_length(self, wire: Wire) -> None:
        key = wire.push()
        wire.fetch(visibility_timeout_ms=20_000)
        pass_time(12)
        wire.send("PUT", f"/v1/jobs/{key}/progress", {"progress": 0.5})
        pass_time(12)
        assert wire.state(key) == "active"
        pass_time(9)
        assert wire.state(key) == "available"

    @pytest.mark.parametrize("named", [{"worker_id": WORKER}, {}], ids=["named", "anonymous"])
    def test_a_worker_that_never_beats_keeps_a_job_of_70_seconds_and_not_for_ever(
        self, wire: Wire, named: dict[str, str]
    ) -> None:
        first, second = wire.push(), wire.push()
        wire.fetch(**named)
        pass_time(70)
        wire.send("POST", "/v1/workers/ack", {"job_id": first, **named})
        wire.fetch(**named)
        pass_time(112)
        assert wire.state(second) == "active"
        pass_time(9)
        assert wire.state(second) == "available"


class TestWhatAFetchSays:
    """http-binding §7.6 and §10.1: `worker_id` is optional in FETCH, and required in BEAT."""

    @pytest.mark.both
    @pytest.mark.requirement("L1-HB-001")
    def test_a_beat_adopts_a_claim_that_names_no_worker(self, wire: Wire) -> None:
        key = wire.push()
        wire.fetch(visibility_timeout_ms=20_000)
        for _ in range(3):
            pass_time(14)
            answer = wire.beat(worker_id=WORKER, active_jobs=[key], visibility_timeout_ms=20_000)
            assert (answer["jobs_extended"], answer["jobs_lost"]) == ([key], [])
        other = wire.beat(worker_id="other", active_jobs=[key])
        assert (other["jobs_extended"], other["jobs_lost"]) == ([], [key])
        wire.send("POST", "/v1/workers/ack", {"job_id": key, "worker_id": "other"}, 409)
        wire.send("POST", "/v1/workers/ack", {"job_id": key})
        assert wire.state(key) == "completed"

    def test_the_death_of_the_worker_that_adopted_it_is_found(self, wire: Wire) -> None:
        key = wire.push()
        wire.fetch(visibility_timeout_ms=600_000)
        wire.beat(worker_id=WORKER, active_jobs=[key])
        pass_time(46)
        assert wire.state(key) == "available"

    def test_a_beat_adopts_no_claim_that_has_ended(self, wire: Wire) -> None:
        key = wire.push()
        wire.fetch(visibility_timeout_ms=1_000)
        pass_time(2)
        answer = wire.beat(worker_id=WORKER, active_jobs=[key])
        assert (answer["jobs_extended"], answer["jobs_lost"]) == ([], [key])

    def test_a_fetch_makes_the_worker_known(self, wire: Wire) -> None:
        wire.fetch(worker_id=WORKER, queues=["email", "default"])
        (worker,) = wire.send("GET", "/v1/admin/workers")["items"]
        assert (worker["id"], worker["queues"]) == (WORKER, ["email", "default"])
        wire.send("POST", f"/v1/admin/workers/{WORKER}/quiet", {})
        wire.push()
        assert wire.fetch(worker_id=WORKER) == []
        assert wire.beat(worker_id=WORKER)["state"] == "quiet"

    def test_a_worker_that_dies_before_its_first_beat_is_found(self, wire: Wire) -> None:
        key = wire.push()
        wire.fetch(worker_id=WORKER)
        pass_time(121)
        assert wire.state(key) == "available"
        assert not Worker.objects.exists()

    def test_a_claim_of_a_worker_that_never_beats_lasts_as_long_as_it_asked(
        self, wire: Wire
    ) -> None:
        key = wire.push()
        wire.fetch(worker_id=WORKER, visibility_timeout_ms=600_000)
        wire.fetch(worker_id=WORKER)
        pass_time(580)
        assert wire.state(key) == "active"
        pass_time(25)
        assert wire.state(key) == "available"

    def test_a_worker_that_polls_is_alive_between_its_beats(self, wire: Wire) -> None:
        key = wire.push()
        wire.fetch(worker_id=WORKER, visibility_timeout_ms=600_000)
        wire.beat(worker_id=WORKER, active_jobs=[key])
        for _ in range(4):
            pass_time(30)
            wire.fetch(worker_id=WORKER)
        assert wire.state(key) == "active"
        pass_time(46)
        assert wire.state(key) == "available"

    def test_a_worker_that_reports_progress_is_alive(self, wire: Wire) -> None:
        key = wire.push()
        wire.fetch(worker_id=WORKER)
        for _ in range(4):
            pass_time(100)
            body = {"worker_id": WORKER, "progress": 0.5}
            wire.send("PUT", f"/v1/jobs/{key}/progress", body)
        assert wire.state(key) == "active"
