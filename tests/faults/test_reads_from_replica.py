"""A real replica is paused, killed and started again under the pages that are read from it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from tests.databases import ALIASES
from tests.faults.replication import Pair
from tests.faults.site import Site
from tests.outbox.remote import Remote
from tests.worker.waiting import BOUND, eventually

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.postgresql,
    pytest.mark.storm,
]

ADMIN = "/admin/django_ojs"
JOBS = "/ojs/v1/admin/jobs"
LAG = "X-OJS-Replica-Lag"
#: All that is read from the replica.
PAGES = (
    *(f"{ADMIN}/{name}/" for name in ("overview", "queue", "job", "deadletterjob", "workflow")),
    *(f"{ADMIN}/event/", f"{ADMIN}/queue/letters/change/", f"{ADMIN}/job/type/?type=faults.effect"),
)
RESPONSES = (
    *(JOBS, "/ojs/v1/admin/queues", "/ojs/v1/admin/stats", "/ojs/v1/admin/stats/history"),
    *("/ojs/v1/admin/dead-letter", "/ojs/v1/dead-letter/stats", "/ojs/v1/dead-letter"),
    *("/ojs/v1/queues", "/ojs/v1/queues/letters/stats", "/ojs/v1/workflows", "/ojs/v1/events"),
)


@contextmanager
def served(site: Site, name: str, **ojs: object) -> Iterator[httpx.Client]:
    """Serve the site by gunicorn, and yield a browser in which a superuser has logged in."""
    environment = {**site.environment, **site.variables}
    environment["OJS_TEST_OJS"] = json.dumps({"READ_DATABASE": "replica", **ojs})
    server = Remote(environment, site.folder / f"{name}.log", "tests.faults.http_settings")
    client = Client()
    client.force_login(User.objects.get())
    cookie = settings.SESSION_COOKIE_NAME
    session = {cookie: client.cookies[cookie].value}
    server.start()
    try:
        with httpx.Client(
            base_url=server.url, cookies=session, trust_env=False, timeout=BOUND
        ) as browser:
            yield browser
    finally:
        server.stop()


def text(browser: httpx.Client, path: str) -> str:
    response = browser.get(path)
    assert response.status_code == 200, (path, response.text)
    return response.text


def listed(browser: httpx.Client) -> dict[str, str]:
    """Return the state of each job in the list of the API."""
    return {job["id"]: job["state"] for job in browser.get(JOBS).json()["items"]}


def test_lists_come_from_the_replica_and_nothing_depends_on_it(site: Site, pair: Pair) -> None:
    with pair.primary.connect() as link:
        link.execute("ALTER SYSTEM SET log_statement = 'all'")  # The replica has it from its start.
    pair.replicate(synchronous=False)
    site.variables["OJS_FAULTS_REPLICA"] = json.dumps(
        {"HOST": "127.0.0.1", "PORT": str(pair.replica.port), "OPTIONS": {"connect_timeout": 4}}
    )
    User.objects.create_superuser("root")
    arguments = ("--queues", "letters", "--threads", "2")
    worker = site.start(*arguments, ojs={"READ_DATABASE": "replica"}).ready()
    with ExitStack() as stack:
        patient = stack.enter_context(served(site, "patient", READ_MAX_LAG=3600))
        strict = stack.enter_context(served(site, "strict", READ_MAX_LAG=1))

        def push() -> str:
            body = {"type": "faults.effect", "args": [0], "options": {"queue": "letters"}}
            response = patient.post("/ojs/v1/jobs", json=body)
            assert response.status_code == 201, response.text
            return str(response.json()["job"]["id"])

        def state(key: str) -> str:
            return str(patient.get(f"/ojs/v1/jobs/{key}").json()["job"]["state"])

        first = push()
        eventually(lambda: state(first) == "completed", "a worker has run it")
        eventually(lambda: listed(patient).get(first) == "completed", "the replica has it")
        # Each page is one of the replica, with every statement that it takes.
        for path in PAGES:
            page = eventually(
                lambda path=path: (
                    page if "Read from the replica, " in (page := text(patient, path)) else ""
                ),
                path,
            )
            assert "Unknown, because" not in page
        for path in RESPONSES:
            assert LAG in patient.get(path).headers, path
        # A primary without writes is no lag, however long ago the last one was.
        idle = "SELECT clock_timestamp() - pg_last_xact_replay_timestamp() > interval '1.5 s'"
        worker.kill()
        eventually(lambda: pair.replica.value(idle), "nothing was written for a while")
        eventually(lambda: strict.get(JOBS).headers.get(LAG) == "0.000", "no lag")

        pair.replica.value("SELECT pg_wal_replay_pause()")
        paused = "SELECT pg_get_wal_replay_pause_state() = 'paused'"
        eventually(lambda: pair.replica.value(paused), "the replay is paused")
        site.start(*arguments, ojs={"READ_DATABASE": "replica"}).ready()
        second = push()
        # It runs: what claims, completes and follows it reads the primary.
        eventually(lambda: state(second) == "completed", "a worker has run it")
        assert second not in listed(patient)
        eventually(
            lambda: re.search(r"Read from the replica, [1-9]\d*\.\d s", text(patient, PAGES[2])),
            "the lag is shown",
        )
        eventually(
            lambda: re.search(r"the replica is \d+\.\d s behind", text(strict, PAGES[2])),
            "too far behind",
        )
        assert listed(strict)[second] == "completed"
        assert "<b>Pages are read from the primary:</b>" in text(strict, PAGES[0])
        # The page after an action shows its effect.
        queue = f"{ADMIN}/queue/letters/change/"
        pause = f"{ADMIN}/queue/action/pause/"
        text(patient, f"{pause}?key=letters")
        token = {"X-CSRFToken": patient.cookies["csrftoken"]}
        assert "action/resume/" not in text(patient, queue)
        posted = patient.post(pause, data={"key": "letters", "next": queue}, headers=token)
        assert posted.status_code == 302, posted.text
        page = text(patient, queue)
        assert "action/resume/" in page
        assert "Read from" not in page
        patient.cookies.delete("ojs_changed")
        assert "Read from the replica" in text(patient, queue)

        pair.replica.value("SELECT pg_wal_replay_resume()")
        eventually(lambda: LAG in strict.get(JOBS).headers, "it has caught up")
        assert listed(patient)[second] == "completed"

        log = pair.replica.data / "log"
        assert "ojs_job" in log.read_text()
        pair.replica.kill()
        for browser in (patient, strict):
            for path in PAGES:
                page = text(browser, path)
                assert "Read from the primary: the replica " in page, path
                assert "Unknown, because" not in page
            for path in RESPONSES:
                response = browser.get(path)
                assert response.status_code == 200, (path, response.text)
                assert LAG not in response.headers
            assert "the replica does not respond (" in text(browser, PAGES[0])
        third = push()
        assert listed(patient)[third] == "available"
        pair.replica.start()
        eventually(lambda: LAG in strict.get(JOBS).headers, "it is used again")
        assert third in listed(patient)
    # What stands before is the primary's, as it was copied.
    _, _, statements = log.read_text().partition("ready to accept read-only connections")
    assert not re.search(r"read-only transaction|ERROR:", statements)
    assert not re.search(r"\b(UPDATE|INSERT INTO|DELETE FROM) ", statements)
    assert not re.search(r"FOR (NO KEY )?UPDATE|SKIP LOCKED|LISTEN|pg_notify", statements)
