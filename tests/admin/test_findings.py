"""The overview names what is wrong within seconds, and has the button that mends it.

`manage.py ojs doctor` reads the same findings.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest
from django.db.models import F
from django.test import Client, override_settings
from django.urls import reverse

from django_ojs.extensions.backpressure.operations import (
    episodes,
    pressure_monitor,
    rejection_counts,
)
from django_ojs.extensions.backpressure.operations.episodes import Episode
from django_ojs.extensions.statistics import rollups
from django_ojs.extensions.statistics.models import Rollup
from django_ojs.finding import Finding
from django_ojs.formatting import absolute_time
from django_ojs.models import ApiKey, Queue
from django_ojs.operations import ack, fail, queues
from django_ojs.operations.access import api_keys
from django_ojs.operations.maintenance import mode
from django_ojs.operations.workers import removal, rescue
from django_ojs.reports.findings import by_kind, worst_first
from django_ojs.spec.errors import QueueFull, TokenExpired
from django_ojs.spec.failure import Failure
from tests import factories
from tests.admin.users import VIEW, root, staff
from tests.cases import together
from tests.command_line.run import ojs
from tests.factories import HOUR, WorkerFactory, active, push, push_many, silence
from tests.model_factories import ApiKeyFactory

pytestmark = pytest.mark.django_db

OVERVIEW = "/admin/django_ojs/overview/"
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


def listener(worker_id: str, queue: str) -> None:
    WorkerFactory(id=worker_id, queues=(queue,), concurrency=4, interval=5 * MINUTE)


def problems(client: Client) -> list[str]:
    """Return the text of each finding of the overview, with the links and forms in it."""
    page = client.get(OVERVIEW).content.decode()
    (listed,) = re.findall(r'<ul class="ojs-health".*?</ul>(?=\s*<dl)', page, re.DOTALL)
    items = re.findall(
        r'<li class="ojs-is-(?:bad|fair)">(.*?)(?=<details|</li>)', listed, re.DOTALL
    )
    return [unescape(re.sub(r"\s+", " ", item)) for item in items]


def plain(item: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", item))


def doctor() -> str:
    return ojs("doctor", "--only", "overview").out


def test_api_keys_that_expire_and_keys_that_are_rejected_end_in_what_mends_them(
    django_capture_on_commit_callbacks: Any,
) -> None:
    expiring, text = ApiKeyFactory(name="<b>billing", scopes=["admin"], expires=30 * DAY)
    with django_capture_on_commit_callbacks(execute=True):
        api_keys.find(text)
    now = datetime.now(UTC)
    expiring_at = absolute_time(now + timedelta(days=2, hours=5, minutes=1))
    ApiKey.objects.filter(pk=expiring.pk).update(
        created_at=now - 28 * DAY, expires_at=now + timedelta(days=2, hours=5, minutes=1)
    )
    WorkerFactory()
    client = root()
    (said,) = problems(client)
    assert f"billing ({expiring.prefix}) expires at {expiring_at}" in plain(said)
    assert "It is in use, and nothing has replaced it." in said
    (replace,) = re.findall(r'href="([^"]+/replace/)"', said)
    assert f"expires at {expiring_at}" in doctor()
    # Who may only look, has fewer scopes than the key, or may add no key has no button.
    for viewer in (
        staff(*VIEW),
        staff("view_overview", "change_apikey", "add_apikey", "operate_job", name="operator"),
        staff("view_overview", "change_apikey", "administer_job", name="changes"),
    ):
        assert replace not in viewer.get(OVERVIEW).content.decode()
    client.post(replace, {"grace": "0"})
    with django_capture_on_commit_callbacks(execute=True), pytest.raises(TokenExpired):
        api_keys.find(text)
    (said,) = problems(client)
    assert "has expired, and a program still sends it; its programs need the key" in plain(said)
    (change,) = re.findall(r'<a class="ojs-button" href="([^"]+)"', said)
    assert client.get(change).status_code == 200
    assert "fail with 401" in doctor()


class TestWorkers:
    def test_a_queue_is_without_a_worker_as_soon_as_its_last_one_stops(self) -> None:
        # Jobs ended until now: the mean of the last minutes shows an active queue.
        listener("only", "email")
        rollups.add(rollups.COMPLETED, {("email", "mail.send"): 600})
        rollups.flush()
        Rollup.objects.update(minute=F("minute") - timedelta(minutes=1))
        push_many(2, queue="email")
        listener("other", "reports")
        assert problems(root()) == []
        removal.remove("only")
        (found,) = problems(root("second"))
        said = "No worker takes jobs from email: 2 jobs are ready."
        assert said in plain(found)
        assert "state%3Aavailable" in found
        assert said in doctor()

    def test_all_workers_gone_is_one_line(self) -> None:
        push(queue="email")
        push_many(2, queue="reports")
        WorkerFactory(id="gone", queues=("email",))
        silence("gone", HOUR)
        (found,) = problems(root())
        said = "No worker is running: 3 jobs of 2 queues are ready or due."
        assert said in plain(found)
        assert said in doctor()

    def test_a_killed_worker_counts_until_three_heartbeats_are_missed(self) -> None:
        listener("only", "email")
        push(queue="email")
        silence("only", 14 * MINUTE)
        assert problems(root()) == []
        silence("only", 2 * MINUTE)
        (found,) = problems(root("second"))
        assert "No worker is running: 1 job of 1 queue" in plain(found)
        listener("other", "reports")
        unworked, stale = sorted(map(plain, problems(root("third"))))
        assert "sent no heartbeat in time: 1." in stale
        assert "No worker takes jobs from email" in unworked

    @pytest.mark.parametrize("ended", [True, False])
    def test_a_client_that_claims_without_a_worker_id_is_a_worker(self, ended: bool) -> None:
        job = active(None, queue="email")
        if ended:
            ack.ack(job.id)
        push(queue="email")
        (found,) = problems(root())
        assert "No worker does the maintenance." in plain(found)

    @pytest.mark.both
    def test_workers_that_died_are_named_with_the_job_they_had_in_common(self) -> None:
        killer = push(queue="images", type="image.resize")
        for name in ("one", "two"):
            listener(name, "images")
            claimed = factories.claim(killer, name)
            other = active(name, queue=f"other-{name}", type="mail.send")
            assert claimed.id == killer.pk
            rescue.rescue([name])
            ack.ack(factories.claim(factories.read(other.id), "three").id)
        found = next(item for item in problems(root()) if "died" in item)
        said = (
            "2 workers died in the last hour, with 4 jobs; "
            f"2 of them had the job {killer.pk} of the type image.resize."
        )
        assert said in plain(found)
        assert reverse("admin:django_ojs_job_change", args=[killer.pk]) in found
        assert said in doctor()

    def test_workers_that_live_did_not_die(self) -> None:
        listener("one", "images")
        active("one", queue="images", type="image.resize")
        rescue.rescue(["one"])
        listener("one", "images")
        (found,) = problems(root())
        said = r"1 worker did not answer for 15 min.*, and lives; 1 job was taken back"
        assert re.search(said, plain(found))


class TestMany:
    def test_findings_of_one_kind_are_one_incident_with_the_others_behind_a_line(self) -> None:
        listener("other", "busy")
        push_many(3, queue="most")
        for number in range(30):
            push(queue=f"q{number:02}")
        active("gone", queue="mail")
        listener("gone", "mail")
        rescue.rescue(["gone"])
        factories.in_state("discarded", queue="reports")
        found = [plain(item) for item in problems(root())]
        # The one that hurts most jobs comes first, then those behind its line, then other kinds.
        assert "No worker takes jobs from most" in found[0]
        assert all("No worker takes jobs from" in item for item in found[1:21])
        assert "1 worker died" in found[21]
        assert "1 new dead letter" in found[22]
        assert len(found) == 23
        page = plain(root("second").get(OVERVIEW).content.decode())
        assert "More of this kind 31" in page
        assert "manage.py ojs doctor lists them all." in page
        assert doctor().count("No worker takes jobs from") == 32

    def test_kinds_beyond_the_fifth_are_behind_a_line(self) -> None:
        listener("other", "busy")
        queues.drain("draining")
        push(queue="paused")
        queues.pause("paused")
        push(queue="unworked")
        factories.in_state("discarded", queue="reports")
        unknown = Failure(type="unknown_job_type", message="no handler")
        lost = active("other", queue="busy", type="renamed.away")
        fail.postpone(lost.id, unknown, delay=30 * SECOND)
        ApiKeyFactory(name="new", scopes=["admin"], expires=30 * DAY)
        active("gone", queue="busy")
        listener("gone", "busy")
        rescue.rescue(["gone"])
        page = root().get(OVERVIEW).content.decode()
        shown, _, behind = page.partition("Of other kinds")
        assert len(re.findall(r'<li class="ojs-is-(?:bad|fair)">', shown)) == 5
        assert '<span class="ojs-count">1</span>' in behind
        assert "1 new dead letter" in behind

    @pytest.mark.both
    @together(
        ("numbers", "expected"),
        [
            ([("full", 1, 0), ("late", 9, 0)], ["late", "full"]),
            ([("full", 2, 60), ("late", 9, 10)], ["full", "late"]),
            ([("full", 0, 99), ("late", 9, 10), ("full", 1, 1)], ["full", "late"]),
        ],
    )
    def test_they_are_sorted_by_the_jobs_they_hurt_and_how_long(
        self, numbers: list[tuple[str, int, int]], expected: list[str]
    ) -> None:
        now = datetime.now(UTC)
        found = [
            Finding(kind=kind, text="", why="", cure="", jobs=jobs, since=now - ago * SECOND)
            for kind, jobs, ago in numbers
        ]
        assert [first.kind for first, *_ in by_kind(worst_first(found))] == expected


class TestTypes:
    def test_a_type_that_no_handler_knows_is_named_with_its_jobs(self) -> None:
        listener("one", "email")
        job = active("one", queue="email", type="renamed.away")
        failure = Failure(type="unknown_job_type", message="no handler")
        fail.postpone(job.id, failure, delay=30 * SECOND)
        (found,) = problems(root())
        assert "No handler knows the type renamed.away: 1 job of email waits." in plain(found)
        assert "type%3Arenamed.away" in found
        assert "bulkoperation/create/cancel/" in found
        assert "bulkoperation/create/" not in problems(staff(*VIEW))[0]

    def test_a_type_that_fails_too_often_is_named(self) -> None:
        rollups.add(rollups.FAILED, {("email", "mail.send"): 6, ("email", "rare"): 4})
        rollups.add(rollups.COMPLETED, {("email", "mail.send"): 6})
        rollups.flush()
        (found,) = [item for item in problems(root()) if "mail.send" in item]
        said = "50 % of the runs of mail.send failed in the last 15 minutes: 6 of 12 in email."
        assert said in plain(found)
        assert "state%3Aretryable%2Cdiscarded" in found
        assert said in doctor()
        with override_settings(OJS={"WARN_FAILURE_RATE": 0.6}):
            assert not any("mail.send" in item for item in problems(root("second")))


class TestQueues:
    def test_a_job_that_has_waited_too_long_is_named_unless_nothing_may_run(self) -> None:
        listener("one", "email")
        factories.age(push(queue="email").pk, timedelta(minutes=16))
        (found,) = problems(root())
        said = "The oldest ready job of email has waited too long; 1 job is ready."
        assert said in plain(found)
        assert "16 min" in plain(found)
        assert f"{said} For 16 min" in doctor()
        with override_settings(OJS={"WARN_OLDEST_AVAILABLE": "PT17M"}):
            assert problems(root("second")) == []
        mode.enable(reason="the new disk")
        (found,) = problems(root("third"))
        assert "the new disk" in plain(found)
        assert "action/end-maintenance/" in found

    def test_a_draining_queue_is_named_and_can_be_resumed(self) -> None:
        listener("one", "email")
        push(queue="email")
        queues.drain("email")
        (found,) = problems(root())
        assert "Queue email is draining: 1 job waits. Enqueues are rejected." in plain(found)
        assert "action/resume/" in found

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize(
        ("strategy", "said"), [("reject", "3 jobs rejected"), ("drop_oldest", "3 jobs dropped")]
    )
    def test_what_a_full_queue_did_is_counted_and_named_when_it_is_over(
        self, strategy: str, said: str
    ) -> None:
        listener("one", "email")
        queues.configure("email", {"backpressure": {"max_depth": 5, "strategy": strategy}})
        push_many(5, queue="email")
        for _ in range(3):
            try:
                push(queue="email")
            except QueueFull:
                assert strategy == "reject"
        pressure_monitor.check_all()
        rejection_counts.recorder.reset()
        rollups.flush()
        found, *others = problems(root())
        assert not others, [plain(other) for other in others]
        assert f"Queue email is full: 5 of 5; {said}." in plain(found)
        assert "action/configure/" in found
        queues.configure("email", {"backpressure": {"max_depth": 100, "strategy": strategy}})
        (found,) = problems(root("second"))
        assert f"Queue email was full in the last hour: {said}." in plain(found)

    @pytest.mark.django_db(transaction=True)
    def test_rejections_before_the_turn_of_the_minute_in_which_it_was_found_full_are_counted(
        self,
    ) -> None:
        listener("one", "email")
        queues.configure("email", {"backpressure": {"max_depth": 5}})
        push_many(5, queue="email")
        with pytest.raises(QueueFull):
            push(queue="email")
        rejection_counts.recorder.reset()
        rollups.flush()
        turn = datetime.now(UTC).replace(second=0, microsecond=0)
        Queue.objects.update(full_at=turn, near_full_at=turn)
        Rollup.objects.update(minute=turn - timedelta(minutes=1))
        (found,) = problems(root())
        assert "5 of 5; 1 job rejected." in plain(found)


class TestEpisode:
    def test_a_queue_that_empties_and_fills_again_is_full_all_the_time(self) -> None:
        listener("one", "email")
        queues.configure("email", {"backpressure": {"max_depth": 10}})
        push_many(10, queue="email")
        pressure_monitor.check_all()
        began = Queue.objects.get(name="email").full_at
        assert began is not None
        for _ in range(3):
            ack.ack(factories.fetch.fetch(["email"], worker_id="one")[0].id)
        pressure_monitor.check_all()
        (found,) = problems(root())
        # The episode goes on, and yet enqueues are accepted.
        assert "Queue email was full lately: 7 of 10." in plain(found)
        assert "When it is full: Enqueues are rejected." in doctor()
        assert Queue.objects.get(name="email").full_at == began
        push_many(3, queue="email")
        pressure_monitor.check_all()
        (found,) = problems(root("second"))
        assert "Queue email is full: 10 of 10." in plain(found)
        assert Queue.objects.get(name="email").full_at == began

    @pytest.mark.both
    def test_it_ends_a_minute_after_the_pressure_is_low_also_where_nothing_checks(self) -> None:
        queues.configure("email", {"backpressure": {"max_depth": 10}})
        push_many(10, queue="email")
        pressure_monitor.check_all()
        assert "email" in episodes.of(["email"])
        factories.jobs().delete()
        pressure_monitor.check_all()
        eased = Queue.objects.get(name="email").eased_at
        assert eased is not None
        Queue.objects.update(eased_at=eased - timedelta(seconds=61))
        assert episodes.of(["email"]) == {}
        pressure_monitor.check_all()
        assert Queue.objects.get(name="email").full_at is None

    def test_it_writes_nothing_while_nothing_changes(self) -> None:
        queues.configure("email", {"backpressure": {"max_depth": 10}})
        push_many(10, queue="email")
        pressure_monitor.check_all()
        before = Queue.objects.get(name="email")
        pressure_monitor.check_all()
        after = Queue.objects.get(name="email")
        assert (before.full_at, before.near_full_at, before.eased_at) == (
            after.full_at,
            after.near_full_at,
            after.eased_at,
        )

    @together(
        ("pressures", "is_full", "is_near"),
        [
            ([0.79], False, False),
            ([0.8], False, True),
            ([1.0], True, True),
            ([1.0, 0.72], True, True),
            ([1.0, *[0.71] * 4], True, True),
            ([1.0, *[0.71] * 7], False, False),
            ([1.0, *[0.71] * 5, 0.75, *[0.71] * 5], True, True),
            ([0.8, *[0.7] * 7], False, False),
            ([0.8, 0.7, 1.0, 0.9], True, True),
        ],
        undo=True,
    )
    def test_it_has_hysteresis(self, pressures: list[float], is_full: bool, is_near: bool) -> None:
        """The pressures are checked ten seconds apart."""
        now, episode = datetime(2026, 3, 1, tzinfo=UTC), Episode()
        for pressure in pressures:
            now += 10 * SECOND
            episode = episode.after(pressure, 0.8, pressure >= 1, now)
        assert (episode.full_at is not None, episode.near_full_at is not None) == (is_full, is_near)
