"""What is read from READ_DATABASE, and what never is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import DEFAULT_DB_ALIAS, OperationalError, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs import checks
from django_ojs.admin.base import CHANGED
from django_ojs.models import Job
from django_ojs.operations import queues
from django_ojs.spec.states import State
from django_ojs.storage import database, replica
from django_ojs.storage.dialects.server import Replication
from tests.admin.users import root
from tests.command_line.run import ojs
from tests.databases import ALIASES
from tests.docs.pages import table
from tests.factories import in_state, push
from tests.http.api import Api
from tests.http.operations import operations

pytestmark = pytest.mark.django_db(transaction=True, databases=ALIASES)

QUEUE = "letters-9"
ADMIN = "/admin/django_ojs/"
SETTINGS = {
    "HTTP_AUTHENTICATION": ["django_ojs.http.authentication.AllowAny"],
    "READ_DATABASE": "other",
    "READ_MAX_LAG": 7,
}
FROM_REPLICA = "Read from the replica, 0.0 s behind."
FRESH = {"Cache-Control": "no-cache"}
STREAMS = ("streamEvents", "subscribeJobEvents", "subscribeQueueEvents")
#: With the statements of a timeout, and of the savepoints around a query.
READS = re.compile(r"(SELECT|WITH|DECLARE|BEGIN|COMMIT|SAVEPOINT|RELEASE|SET|PRAGMA)\b")


@pytest.fixture
def stale(transactional_db: None) -> Iterator[None]:
    """Let `other`, which has no jobs, be a replica that has not replayed them yet."""
    with override_settings(OJS=SETTINGS), lag(0):
        yield


@pytest.fixture
def mirror(transactional_db: None) -> Iterator[BaseDatabaseWrapper]:
    """Let `other` be a second alias of the database that holds the jobs."""
    link = connections["other"]
    kept = link.settings_dict["NAME"]
    link.close()
    link.settings_dict["NAME"] = connection.settings_dict["NAME"]
    try:
        with override_settings(OJS=SETTINGS):
            yield link
    finally:
        link.close()
        link.settings_dict["NAME"] = kept


@contextmanager
def lag(seconds: float | None) -> Iterator[None]:
    """Let the replica be so far behind, or not know it."""
    found = Replication(True, None if seconds is None else timedelta(seconds=seconds))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(database.dialect()), "replication", lambda *_: found)
        yield


def queried(get: Callable[[], Any]) -> tuple[Any, list[str]]:
    """Call it. Return its result, and the statements on the alias of the replica."""
    with CaptureQueriesContext(connections["other"]) as there:
        result = get()
    found = [re.sub(r"/\*.*?\*/|\(", "", each["sql"]).strip() for each in there]
    return result, [sql for sql in found if "ojs_" in sql]


def documented(column: int) -> str:
    rows = table("how-to/outgrow-one-machine.md", "6. Reads from a replica")
    (row,) = (row for row in rows if row[0] == "The replica")
    return row[column]


def test_the_api_reads_there_what_is_documented_and_nothing_else(
    mirror: BaseDatabaseWrapper,
) -> None:
    job = in_state(State.DISCARDED, queue=QUEUE)
    queues.listing()  # The row of the queue is made by the first reader.
    api, found = Api(), set()
    for operation in operations():
        if operation.method != "GET" or operation.id in STREAMS:
            continue
        path = operation.path.format(name=QUEUE, key=job.pk)
        response, there = queried(lambda path=path: api.client.get(path))
        assert all(READS.match(sql) for sql in there), (path, there)
        if there:
            assert (response.status_code, response["X-OJS-Replica-Lag"]) == (200, "0.000"), path
            found.add(operation.path.removeprefix("/ojs"))
            assert not queried(lambda path=path: api.client.get(path, headers=FRESH))[1]
        else:
            assert "X-OJS-Replica-Lag" not in response, path
    assert found == set(re.findall(r"/v1/[\w/{}-]+", documented(2)))


def test_the_admin_says_which_pages_it_reads_there(mirror: BaseDatabaseWrapper) -> None:
    job = in_state(State.DISCARDED, queue=QUEUE)
    queues.listing()
    client = root()
    lists = ("overview", "queue", "job", "deadletterjob", "workflow", "event")
    there = [f"{name}/" for name in lists]
    there += ["queue/letters-9/change/", "job/type/?type=test.job", "job/suggestions/"]
    here = [f"{name}/" for name in ("worker", "cronjob", "bulkoperation", "outboxentry", "apikey")]
    here += [f"job/{job.pk}/change/", "queue/action/purge/?key=letters-9", "webhook/"]
    for path in there:
        response, statements = queried(lambda path=path: client.get(ADMIN + path))
        assert response.status_code == 200, path
        assert statements, path
        assert all(READS.match(sql) for sql in statements), (path, statements)
        assert FROM_REPLICA in response.content.decode() or "suggestions" in path
    for path in here:
        response, statements = queried(lambda path=path: client.get(ADMIN + path))
        assert response.status_code == 200, path
        assert not statements, (path, statements)
        assert "Read from" not in response.content.decode()


def test_what_a_write_is_decided_by_is_never_read_there(stale: None) -> None:
    api = Api()
    wanted = {"queue": QUEUE, "options": {"unique": {"keys": ["type"], "on_conflict": "ignore"}}}
    key = api.push(**wanted)["id"]
    # The list is that of a replica which has not replayed the job yet, and the job is there.
    listed = api.get("admin/jobs")
    assert (listed["items"], listed.headers["X-OJS-Replica-Lag"]) == ([], "0.000")
    assert api.info(key)["state"] == "available"
    fresh = api.get("admin/jobs", headers=FRESH)
    assert [each["id"] for each in fresh["items"]] == [key]
    # A second one is known to be a duplicate, and the job is claimed, beaten and completed.
    assert api.push(200, **wanted)["id"] == key
    (claimed,) = api.fetch(QUEUE, worker_id="w")
    assert claimed["id"] == key
    api.post("workers/heartbeat", {"worker_id": "w", "active_jobs": [key]}).ok()
    api.post("workers/ack", {"job_id": key, "worker_id": "w", "result": 1}).ok()
    assert api.info(key)["state"] == "completed"
    assert not Job.objects.using("other").exists()
    # Only the primary knows that something does not exist.
    found = api.get("queues/letters-9/stats")
    assert found.ok()["queue"]["name"] == QUEUE
    assert "X-OJS-Replica-Lag" not in found.headers
    assert QUEUE in root().get(f"{ADMIN}queue/letters-9/change/").content.decode()
    assert api.get("queues/none/stats").status == 404


def test_the_pages_after_an_action_show_its_effect(stale: None) -> None:
    push(queue=QUEUE)
    queues.listing()
    client = root()
    lists = f"{ADMIN}queue/"
    assert QUEUE not in client.get(lists).content.decode()
    client.post(f"{ADMIN}queue/action/pause/", {"key": QUEUE})
    cookie = client.cookies[CHANGED]
    # What is older than READ_MAX_LAG is on any replica that is used.
    assert (cookie["max-age"], cookie["httponly"], cookie["samesite"]) == (7, True, "Lax")
    for _ in range(2):
        page = client.get(lists).content.decode()
        assert QUEUE in page
        assert "Read from" not in page
    del client.cookies[CHANGED]
    assert QUEUE not in client.get(lists).content.decode()


def test_a_page_with_something_to_write_is_read_from_the_primary(
    mirror: BaseDatabaseWrapper,
) -> None:
    push(queue="fresh")
    api = Api()
    first, second = api.get("queues"), api.get("queues")
    assert first["queues"] == second["queues"] != []
    assert "X-OJS-Replica-Lag" not in first.headers
    assert "X-OJS-Replica-Lag" in second.headers
    with database.on_replica("other"), pytest.raises(database.NeedsPrimary):
        queues.pause("fresh")


def test_a_replica_that_is_too_far_behind_is_not_used(stale: None) -> None:
    push(queue=QUEUE)
    client, api = root(), Api()
    for seconds, why in ((8.4, "is 8.4 s behind"), (None, "does not say how far it is behind")):
        with lag(seconds):
            page = client.get(f"{ADMIN}job/").content.decode()
            assert QUEUE in page
            assert f"Read from the primary: the replica {why}." in page
            overview = client.get(f"{ADMIN}overview/").content.decode()
            assert f"<b>Pages are read from the primary:</b> the replica {why}." in overview
            assert "X-OJS-Replica-Lag" not in api.get("admin/jobs").headers
            doctor = ojs("doctor", "--only", "replica")
            assert f"The replica 'other' {why}." in doctor.out
            assert doctor.code == 1
    with lag(0.84):
        page = client.get(f"{ADMIN}job/").content.decode()
        assert "Read from the replica, 0.8 s behind." in page
        assert QUEUE not in page
        assert "Pages are read from" not in client.get(f"{ADMIN}overview/").content.decode()
        assert api.get("admin/jobs").headers["X-OJS-Replica-Lag"] == "0.840"
        assert "ok        The replica for reading" in ojs("doctor", "--only", "replica").out


def test_a_database_that_is_no_replica_is_not_used(transactional_db: None) -> None:
    push(queue=QUEUE)
    why = "is not one of the database that holds the jobs"
    with override_settings(OJS=SETTINGS):
        page = root().get(f"{ADMIN}job/").content.decode()
        assert QUEUE in page
        assert f"Read from the primary: the replica {why}." in page


def test_no_page_fails_because_the_replica_does(
    mirror: BaseDatabaseWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(queue=QUEUE)
    queues.listing()
    client, api, asked = root(), Api(), []

    def fail(*_: Any) -> None:
        asked.append(1)
        raise OperationalError("connection refused")

    def between(execute: Any, sql: str, *more: Any) -> Any:
        if "ojs_" in sql:
            raise OperationalError("terminating connection")
        return execute(sql, *more)

    # It ends between two queries of a page.
    with mirror.execute_wrapper(between):
        for path in ("overview", "queue", "job", "event"):
            response = client.get(f"{ADMIN}{path}/")
            assert response.status_code == 200
            page = response.content.decode()
            assert "Read from the primary: the replica failed a query." in page
            assert "Unknown, because" not in page
        assert len(api.get("admin/jobs").ok()["items"]) == 1
    # It cannot be reached. It is asked again after a while, by one page at a time.
    with monkeypatch.context() as patch:
        patch.setattr(type(database.dialect()), "replication", fail)
        patch.setattr(replica, "REST", 3600.0)
        for _ in range(3):
            page = client.get(f"{ADMIN}queue/").content.decode()
            assert QUEUE in page
            assert "the replica does not respond (OperationalError: connection refused)" in page
        assert len(asked) == 2  # A connection that was open may be one of before.
        patch.setattr(replica, "REST", 0)
        replica.monitor.reset()
        client.get(f"{ADMIN}queue/")
        client.get(f"{ADMIN}queue/")
        assert len(asked) == 4
    assert FROM_REPLICA in client.get(f"{ADMIN}queue/").content.decode()


def test_the_command_line_says_where_it_reads(stale: None) -> None:
    job = push(queue=QUEUE)
    for command in ("jobs", "stats"):
        found = ojs(command)
        assert QUEUE not in found.out
        assert FROM_REPLICA in found.err
    with lag(100):
        found = ojs("jobs")
    assert str(job.pk) in found.out
    assert "Read from the primary: the replica is 1 min 40 s behind." in found.err


def test_e008_an_alias_that_cannot_be_read() -> None:
    def problem(alias: Any) -> str:
        with override_settings(OJS={"READ_DATABASE": alias}):
            return " ".join(
                f"{each.id} {each.msg} {each.hint}"
                for each in (*checks.check_settings(), *checks.check_read_database())
            )

    assert problem(None) == ""
    assert problem("other") == ""
    assert (
        "E008 OJS['READ_DATABASE'] is 'wrong', which is not in DATABASES. It must be one of "
        in (problem("wrong"))
    )
    assert "holds the jobs itself" in problem(DEFAULT_DB_ALIAS)
    assert "E001 OJS['READ_DATABASE'] must be an alias of DATABASES, or None." in problem(3)
    values = connections["other"].settings_dict
    values["ATOMIC_REQUESTS"] = True
    try:
        assert "every request needs a connection to it" in problem("other")
    finally:
        values["ATOMIC_REQUESTS"] = False
    # Without the check, too, no page fails.
    with override_settings(OJS={**SETTINGS, "READ_DATABASE": "wrong"}):
        page = root().get(f"{ADMIN}job/").content.decode()
    assert "Read from the primary: the replica is not in DATABASES." in page
