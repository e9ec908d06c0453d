"""What is different on MariaDB, and what a server that is set up wrong would do to the jobs."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, ProgrammingError, connection, connections, transaction

from django_ojs import checks
from django_ojs.extensions.limits.models import LimitKey
from django_ojs.models import Attempt, Job
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.models.base import stored_models
from django_ojs.operations import ack, fail, fetch, queues
from django_ojs.operations import push as pushing
from django_ojs.operations.cancel import cancel
from django_ojs.spec.errors import PayloadTooLarge, QueueFull
from django_ojs.spec.failure import Failure
from django_ojs.spec.states import State
from django_ojs.storage import database, schema, transitions
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.dialects.rows import ClaimRequest
from django_ojs.storage.figures import counts
from django_ojs.worker.completer import Completer
from django_ojs.worker.in_flight import JobsInFlight
from django_ojs.worker.job_log import JobLog
from tests.factories import GENERATED, WORKER, EnvelopeFactory, active, own_connections, push, read
from tests.http.api import Api, ApiResponse
from tests.model_factories import LimitKeyFactory
from tests.other_session import until_one_waits
from tests.worker.parts import run_of
from tests.worker.waiting import BOUND

pytestmark = [pytest.mark.mariadb, pytest.mark.django_db(transaction=True)]

COLLATION = "utf8mb4_nopad_bin"
#: What is said of each server.
KNOWN = "django_ojs.W006"


@pytest.fixture
def new_session() -> Iterator[None]:
    """Give a test a session whose variables it may change."""
    connection.close()
    yield
    connection.close()


def said() -> list[str]:
    found = checks.check_database(databases=["default"])
    assert {problem.id for problem in found} <= {
        "django_ojs.E010",
        KNOWN,
        "django_ojs.W007",
    }
    return [problem.msg for problem in found if problem.id != KNOWN]


def test_every_text_is_compared_by_its_code_points_to_its_last_space() -> None:
    tables = {model._meta.db_table for model in stored_models() if model._meta.managed} | {
        "ojs_count",
        "ojs_count_change",
    }
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name, column_name, collation_name FROM information_schema.columns"
            " WHERE table_schema = DATABASE() AND collation_name IS NOT NULL"
        )
        found = [row for row in cursor.fetchall() if row[0] in tables]
        cursor.execute("SELECT @@collation_database")
        assert cursor.fetchone()[0] != COLLATION, "the database has another one"
    assert {row[0] for row in found} <= tables
    assert {row for row in found if row[2] != COLLATION} == set()
    for key in ("a", "A", "a ", "ä", "á"):
        LimitKeyFactory(key=key, expires_at="2030-01-01T00:00:00Z")
    assert LimitKey.primary.get(pk="a ").key == "a "
    assert LimitKey.primary.filter(key__in=["a"]).count() == 1


def test_json_is_stored_as_it_is_however_deep() -> None:
    deep: object = ["é\u2028\U0001f600", 1e300, 0.1, -9007199254740991, {"z": 1, "a": None}]
    for _ in range(50):
        deep = [deep]
    claimed = active(args=[deep], meta={"b": 1, "a": "\\"})
    assert claimed.args == [deep]
    assert list(claimed.meta) == ["b", "a"]
    ack.ack(claimed.id, result={"deep": deep})
    assert read(claimed.id).result == {"deep": deep}
    # A batch is completed by another statement.
    claimed = active()
    assert ack.ack_batch(WORKER, [(claimed.id, claimed.run, deep)]) == {claimed.id}
    assert read(claimed.id).result == deep


def test_a_batch_above_the_largest_message_of_the_server_is_stored_in_order() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@max_allowed_packet")
        number = cursor.fetchone()[0] // 900_000 + 2
    wanted = EnvelopeFactory.create_batch(number, queue="large", args=["x" * 900_000])
    with transaction.atomic():
        pushing.push_batch(wanted, GENERATED)
    stored = Job.objects.filter(queue="large").order_by("enqueued_at", "id")
    assert list(stored.values_list("pk", flat=True)) == [job.id for job in wanted]


def test_outcomes_above_the_largest_message_of_the_server_are_stored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@max_allowed_packet")
        most = cursor.fetchone()[0]
    in_flight = JobsInFlight()
    completer = Completer(WORKER, in_flight, JobLog(), lambda _: None, lambda _: None)

    def end(job: Claimed, result: object) -> None:
        run = run_of(lambda: None, job=job)
        in_flight.add([run])
        run.begin()
        run.end()
        completer.handler_ended(run, result, None, False)

    large, quotes = "x" * 900_000, '"' * (most // 4)
    ended = [(active(), large) for _ in range(most // len(large) + 2)]
    # The driver writes four bytes for each, and the server takes no such statement.
    rejected = active()
    for job, result in [*ended, (rejected, quotes)]:
        end(job, result)
    assert completer.close(120), "all of it is stored"
    assert {read(job.id).state for job, _ in ended} == {State.COMPLETED}
    assert read(ended[-1][0].id).result == large
    assert read(rejected.id).error["type"] == "result_rejected"
    assert "does not respond" not in caplog.text

    failure = Failure(type="X", message="", details={"n": large})
    jobs = [active() for _ in range(len(ended))]
    fail.fail_batch(WORKER, [(job, failure, AttemptOutcome.FAILED) for job in jobs])
    assert {read(job.id).state for job in jobs} == {State.RETRYABLE}
    assert Attempt.primary.filter(job_id=jobs[-1].id).get().error["details"] == {"n": large}


@pytest.fixture
def small_messages() -> Iterator[int]:
    """Let the server take no message above its smallest usual limit, in new sessions."""
    most = 2**20
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@GLOBAL.max_allowed_packet")
        former = cursor.fetchone()[0]
        cursor.execute("SET GLOBAL max_allowed_packet = %s", [most])
    connection.close()
    yield most
    connection.close()  # A test that fails leaves one that the server has ended.
    with connection.cursor() as cursor:
        cursor.execute("SET GLOBAL max_allowed_packet = %s", [former])
    connection.close()


def test_what_is_above_the_largest_message_of_the_server_is_rejected_for_good(
    small_messages: int, caplog: pytest.LogCaptureFixture
) -> None:
    api, claimed, large = Api(), active(), '"' * (small_messages // 2)
    key = str(claimed.id)

    def rejected(response: ApiResponse) -> None:
        error = response.error(413, "PAYLOAD_TOO_LARGE", max_bytes=small_messages)
        assert error["details"]["actual_bytes"] > small_messages
        assert not error["retryable"]
        assert "max_allowed_packet" in error["hint"]
        assert large[:9] not in str(error)

    rejected(api.post("workers/ack", {"job_id": key, "result": large}))
    rejected(api.post("jobs", {"type": "test.job", "queue": "large", "args": [large]}))
    batch = [{"type": "test.job", "queue": "large", "args": [args]} for args in ("small", large)]
    rejected(api.post("jobs/batch", {"jobs": batch}))
    assert read(claimed.id).state == State.ACTIVE
    # The connection, and a transaction, are still there.
    with transaction.atomic():
        push(queue="kept")
        with pytest.raises(PayloadTooLarge):
            push(queue="large", args=[large])
        push(queue="kept")
    api.post("workers/ack", {"job_id": key, "result": "small"}).ok()
    assert read(claimed.id).result == "small"
    assert [job.queue for job in Job.objects.exclude(pk=claimed.id)] == ["kept", "kept"]
    assert "database" not in caplog.text


def test_eight_workers_at_once_claim_and_end_each_job_once() -> None:
    number, workers = 240, 8
    for _ in range(number // 60):
        pushing.push_batch(EnvelopeFactory.create_batch(60, queue="busy"), GENERATED)
    start = threading.Barrier(workers)
    ended: Counter[object] = Counter()

    def work(name: str) -> None:
        with own_connections():
            start.wait(BOUND)
            while jobs := fetch.fetch(["busy"], count=7, worker_id=name, due=False):
                ended.update(ack.ack_batch(name, [(job.id, job.run, {"by": name}) for job in jobs]))

    with ThreadPoolExecutor(workers) as pool:
        for future in [pool.submit(work, f"worker-{n}") for n in range(workers)]:
            future.result(BOUND)
    left = Job.objects.filter(queue="busy").exclude(state=State.COMPLETED)
    assert not left.exists()
    assert len(ended) == number
    assert set(ended.values()) == {1}
    assert counts.by_queue(["busy"])["busy"][State.COMPLETED] == number
    while counts.fold():
        pass
    assert counts.by_queue(["busy"])["busy"][State.COMPLETED] == number
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM ojs_count_change")
        assert cursor.fetchone()[0] == 0


def test_a_change_of_jobs_locks_no_other_job_of_a_small_table() -> None:
    """A claim skips what is locked: it would return nothing though a job was just enqueued."""
    dialect = database.dialect()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE TABLE ojs_job")
        cursor.fetchall()
    waiting = [push(queue="others") for _ in range(2)]
    held = [active(queue="held") for _ in range(3)]
    chosen, other = [job.pk for job in waiting], push(queue="new")

    def claim() -> list[Claimed]:
        with own_connections():
            return fetch.fetch(["new"], worker_id="other", due=False)

    def complete() -> None:
        transitions.complete(WORKER, [(job.id, job.run, None) for job in held])

    changes: list[Callable[[], object]] = [
        lambda: dialect.claim_chosen(
            connection,
            chosen,
            ClaimRequest(queue="others", limit=2, worker_id=WORKER, lease_ms=1000, own_lease=False),
        ),
        complete,
        lambda: dialect.erase(connection, [job.id for job in held]),
    ]
    with ThreadPoolExecutor(1) as pool:
        for change in changes:
            with transaction.atomic():
                change()
                (found,) = pool.submit(claim).result(BOUND)
                assert found.id == other.pk
            fail.requeue(found.id, Failure(type="X", message=""))
    assert Job.objects.filter(queue="held").count() == 0
    # By its key, each of them: which plan the server takes for a small table depends on its load.
    for name, statement in dialect.sql.items():
        if "STRAIGHT_JOIN" in statement:
            assert re.search(r"STRAIGHT_JOIN \S+( AS \w)? FORCE INDEX \(PRIMARY\)", statement), name


def add(queue: str, number: int = 1) -> None:
    pushing.push_batch(EnvelopeFactory.create_batch(number, queue=queue), GENERATED)


def bound(queue: str, depth: int) -> None:
    queues.configure(queue, {"backpressure": {"max_depth": depth}})


def test_of_two_open_transactions_that_want_the_last_room_one_is_rejected_and_none_is_lost() -> (
    None
):
    bound("full", 100)
    add("full", 60)
    both = threading.Barrier(2)

    def produce(name: str) -> str:
        with own_connections(), transaction.atomic():
            push(queue=name)
            add("full")
            # Each has a share now, and wants all of them.
            both.wait(BOUND)
            said = "stored"
            try:
                add("full", 20)
            except QueueFull as full:
                said = str(full)
            push(queue=name)
            return said

    with ThreadPoolExecutor(2) as pool:
        rejected, stored = sorted(pool.map(produce, ["one", "two"]))
    assert stored == "stored"
    assert "transactions are open" in rejected
    assert [Job.objects.filter(queue=name).count() for name in ("one", "two", "full")] == [2, 2, 82]


def test_a_savepoint_that_is_rolled_back_gives_back_the_room_but_not_the_share() -> None:
    bound("shared", 640)
    with transaction.atomic():
        for _ in range(200):
            with transaction.atomic():
                add("shared")
                transaction.set_rollback(True)
        add("shared")
        with ThreadPoolExecutor(1) as pool:

            def other() -> None:
                with own_connections():
                    add("shared")

            pool.submit(other).result(BOUND)
    assert counts.by_queue(["shared"])["shared"][State.AVAILABLE] == 2


def test_the_end_of_a_deadlock_at_two_bounds_is_said_as_what_it_is() -> None:
    for name in ("one", "two"):
        bound(name, 5)
        add(name, 4)
    both = threading.Barrier(2)

    def produce(names: tuple[str, str]) -> str:
        first, second = names
        try:
            with own_connections(), transaction.atomic():
                add(first)
                both.wait(BOUND)
                add(second)
        except OperationalError as error:
            return str(error)
        return "stored"

    with ThreadPoolExecutor(2) as pool:
        ended, stored = sorted(pool.map(produce, [("one", "two"), ("two", "one")]))
    assert stored == "stored"
    assert "Deadlock" in ended
    assert Job.objects.filter(queue__in=["one", "two"]).count() == 10


@pytest.mark.parametrize("is_callers", [False, True])
def test_a_deadlock_is_repeated_unless_the_transaction_is_the_callers(*, is_callers: bool) -> None:
    first, second = sorted((active(), active()), key=lambda job: job.id)
    others = [push(queue="others").pk for _ in range(50)]
    has_second, may_go_on = threading.Event(), threading.Event()

    def other() -> None:
        with own_connections(), transaction.atomic():
            # More rows than the other one has changed: the server ends that.
            Job.primary.filter(pk__in=others).update(priority=1)
            Job.primary.select_for_update().get(pk=second.id)
            has_second.set()
            may_go_on.wait(BOUND)
            Job.primary.select_for_update().get(pk=first.id)

    def erase() -> int:
        # It locks the first, and waits for the second.
        return database.dialect().erase(connection, [first.id, second.id])

    def in_a_transaction(operation: Callable[[], object]) -> None:
        with transaction.atomic():
            push(queue="lost")
            operation()

    def let_it_go_on() -> None:
        with own_connections():
            try:
                until_one_waits()
            finally:
                may_go_on.set()

    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(other)]
        assert has_second.wait(BOUND)
        futures.append(pool.submit(let_it_go_on))
        if is_callers:
            with pytest.raises(OperationalError, match="Deadlock"):
                in_a_transaction(erase)
        else:
            assert erase() == 2
        for future in futures:
            future.result(BOUND)
    assert not Job.objects.filter(queue="lost").exists()
    left = Job.objects.filter(pk__in=[first.id, second.id])
    assert left.count() == (2 if is_callers else 0)


@pytest.mark.usefixtures("new_session")
def test_a_session_that_is_set_up_wrong_is_rejected() -> None:
    assert said() == []
    for statement, problem in (
        ("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "isolation REPEATABLE-READ"),
        ("SET time_zone = '+01:00'", "time zone of the session is not UTC"),
        ("SET sql_mode = ''", "not strict"),
        ("SET NAMES latin1", "writes latin1"),
    ):
        with connection.cursor() as cursor:
            cursor.execute(statement)
        assert problem in said()[0]
        connection.close()
        assert said() == []


def test_triggers_that_were_read_in_part_are_read_again_by_who_may_close_the_table() -> None:
    """A query is ended while the server opens the table, which takes that for a syntax error."""
    unchanged = push(queue="unchanged")
    # The session of an operator, in which no statement runs again.
    other = connection.copy()
    user, password = "ojs_without_reload", "secret"

    def execute(statement: str) -> None:
        with other.cursor() as cursor:
            cursor.execute(statement)

    def is_broken() -> bool:
        try:
            execute("UPDATE ojs_job SET priority = priority")
        except ProgrammingError as error:
            assert "has an error in its body" in str(error)  # noqa: PT017
            return True
        return False

    def read_in_part() -> None:
        for n in range(2000):
            execute("FLUSH LOCAL TABLES")
            limit = 0.001 + n % 40 / 2000
            with suppress(OperationalError):
                execute(f"SET STATEMENT max_statement_time = {limit} FOR SELECT 1 FROM ojs_job")
            if is_broken():
                return
        pytest.fail("no query was ended while the server read the triggers")

    try:
        other.ensure_connection()
        other.execute_wrappers.clear()
        # It takes a while to be read, and the others are read after it.
        execute(
            "CREATE TRIGGER ojs_job_long BEFORE DELETE ON ojs_job FOR EACH ROW"
            f" BEGIN {'SET @a = 1 + 2;' * 20_000} END"
        )
        read_in_part()
        push(queue="alone")
        assert not is_broken()

        with transaction.atomic():
            push(queue="together")
            read_in_part()
            push(queue="together")
        assert not is_broken()

        execute(f"CREATE USER {user}@localhost IDENTIFIED BY '{password}'")
        execute(f"GRANT ALL ON {connection.settings_dict['NAME']}.* TO {user}@localhost")
        read_in_part()
        kept = connections["default"]
        rejected = connections["default"] = connection.copy()
        rejected.settings_dict |= {"USER": user, "PASSWORD": password}
        try:
            problems = checks.check_database(databases=["default"])
            assert problems[-1].id == "django_ojs.W008"
            assert "GRANT RELOAD" in str(problems[-1].hint)
            for operation in (partial(push, queue="rejected"), partial(cancel, unchanged.pk)):
                with pytest.raises(OperationalError) as caught:
                    operation()
                assert database.is_unavailable(caught.value)
                assert "run FLUSH LOCAL TABLES" in database.unavailable_reason(caught.value)
            execute("FLUSH LOCAL TABLES")
            push(queue="allowed")
        finally:
            rejected.close()
            connections["default"] = kept
    finally:
        execute("FLUSH LOCAL TABLES")
        execute("DROP TRIGGER IF EXISTS ojs_job_long")
        execute(f"DROP USER IF EXISTS {user}@localhost")
        other.close()
    queues_of = Job.objects.order_by("id").values_list("queue", flat=True)
    assert [*queues_of] == ["unchanged", "alone", "together", "together", "allowed"]
    assert counts.by_queue(["together"])["together"][State.AVAILABLE] == 2
    assert not counts.differences()


def test_a_broken_trigger_of_the_site_itself_raises_its_own_error() -> None:
    """It has no name in the error, as one of django_ojs may: no table is closed for it."""
    kept = push(queue="kept")

    def flushes(cursor: Any) -> int:
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Com_flush'")
        return int(cursor.fetchone()[1])

    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE a_site_order (ojs_job_id char(36))")
        cursor.execute(
            "CREATE TRIGGER a_site_note AFTER INSERT ON a_site_order FOR EACH ROW SET @a = 1"
        )
        cursor.execute("SELECT @@datadir, DATABASE()")
        path = Path(*cursor.fetchone(), "a_site_order.TRG")
        whole = path.read_text()
        try:
            path.write_text(whole.replace("TRIGGER a_site_note", "TRIGGER"))
            cursor.execute("FLUSH LOCAL TABLES")
            before = flushes(cursor)
            for statement in (
                "INSERT INTO a_site_order (ojs_job_id) VALUES (%s)",
                "INSERT INTO a_site_order (ojs_job_id) SELECT id FROM ojs_job WHERE id = %s",
            ):
                with pytest.raises(ProgrammingError, match="trigger has an error in its body"):
                    cursor.execute(statement, [str(kept.pk)])
            assert flushes(cursor) == before
        finally:
            path.write_text(whole)
            cursor.execute("FLUSH LOCAL TABLES")
            cursor.execute("DROP TABLE a_site_order")


def test_the_schema_can_be_created_twice() -> None:
    push(queue="kept")
    schema.create(connection)
    assert counts.by_queue(["kept"])["kept"][State.AVAILABLE] == 1
