"""The optional indexes of searches: what is found with them, is found without them too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ojs.command_line import indexes
from django_ojs.operations.jobs import listing, search_index
from django_ojs.operations.jobs.search_query import parse
from django_ojs.storage import database
from tests.command_line.run import Terminal, ojs
from tests.factories import in_state, jobs, own_connections, push, push_many
from tests.worker.waiting import eventually

#: Enough that PostgreSQL would rather read the table than use an index of which it expects little.
ROWS = 20_000
_LOAD = """
INSERT INTO ojs_job (id, type, queue, state, priority, args, meta, options, attempt, max_attempts,
                     returned, run, created_at, enqueued_at, started_at, finished_at, dead_letter)
SELECT ('0192' || lpad(to_hex(n), 8, '0') || '70008000' || lpad(to_hex(n), 12, '0'))::uuid,
       'type.t' || n %% 20, 'queue-' || n %% 5, 'completed', 0,
       jsonb_build_array(jsonb_build_object('user_id', n, 'shop', n %% 3)),
       jsonb_build_object('tenant_id', 't' || n %% 3), '{}', 1, 3, 0, 1,
       now() - interval '1 hour', now() - interval '1 hour', now() - interval '50 min',
       now() - n * interval '1 second', false
FROM generate_series(1, %s) AS n
"""


def keys_of(text: str, **values: Any) -> list[Any]:
    which = parse(text).filter
    assert which is not None
    return [job.pk for job in listing.list_jobs(which, **values).jobs]


@pytest.fixture
def without_indexes() -> Iterator[None]:
    yield
    if connection.vendor == "postgresql":
        for column in search_index.INDEXES:
            search_index.drop(column)


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("without_indexes")
def test_the_index_finds_what_the_scan_finds_and_all_of_it() -> None:
    wanted = [
        push(args=[{"user_id": -1, "tags": ["a", 5]}, 42], meta={"tenant_id": "acme"}).pk,
        in_state("completed", args=[{"user_id": "-1"}], meta={"tenant_id": "acme"}).pk,
        in_state("discarded", args=[42, "x"], meta={"tenant_id": {"is": None}}).pk,
        in_state("retryable", args=[[1, 2], {"user_id": -1.0}], meta={"on": True}).pk,
    ]
    push_many(4, args=[{"user_id": 7}], meta={"tenant_id": "other"})
    with database.connection().cursor() as cursor:
        cursor.execute(_LOAD, [ROWS])
        cursor.execute("ANALYZE ojs_job")
    searches = (
        *("args.user_id:-1", 'args.user_id:"-1"', "args.0.user_id:-1", "args.1.user_id:-1"),
        *("args:42", "args.1:42", "args.0:42", "args.0.tags.1:5", "args.0.1:2", "args:none"),
        *("meta.tenant_id:acme", "meta.tenant_id.is:null", "meta.on:true"),
        *("args.user_id:-1 state:completed", "args.user_id:-1 state:retryable"),
        *("args.user_id:-1 meta.tenant_id:acme", "args:42 state:discarded", "args.shop:1"),
        *("args:42 is:dead", "args.user_id:-1 state:available queue:default", "meta.on:true tag:x"),
    )
    without = {search: keys_of(search) for search in searches}
    # A scan that is too short for the jobs loaded above, which are older than all others.
    assert keys_of("args.user_id:3", scan_limit=500) == []

    run = ojs("index", "--create", err=Terminal())
    assert run.code == 0, run.err
    assert [line.split()[:3] for line in run.out.splitlines()[1:]] == [
        ["args", "ojs_job_args_search", "ready"],
        ["meta", "ojs_job_meta_search", "ready"],
    ]
    assert {search: keys_of(search) for search in searches} == without
    assert set(wanted) == set().union(*without.values()) & set(wanted)
    (old,) = keys_of("args.user_id:3", scan_limit=500)
    for search, number in (("args.user_id:3", 1), ("args.0.user_id:3 state:completed", 1)):
        which = parse(search).filter
        assert which is not None
        page = listing.list_jobs(which, scan_limit=500)
        assert ([job.pk for job in page.jobs], page.is_complete, page.end) == ([old], True, None)
        assert listing.count(which, scan_limit=500) == (number, False)
    # Pages follow each other in the order of the list, in both directions.
    monkey = parse("meta.tenant_id:other").filter
    assert monkey is not None
    first = listing.list_jobs(monkey, limit=3)
    second = listing.list_jobs(monkey, limit=3, after=first.end)
    assert [job.pk for job in (*first.jobs, *second.jobs)] == list(
        jobs().filter(meta__tenant_id="other").order_by("-pk").values_list("pk", flat=True)
    )


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("without_indexes")
def test_the_planner_uses_it_whatever_it_expects(monkeypatch: pytest.MonkeyPatch) -> None:
    with database.connection().cursor() as cursor:
        cursor.execute(_LOAD, [ROWS])
        cursor.execute("ANALYZE ojs_job")
    ojs("index", "--create")
    # A third of the jobs: PostgreSQL would read the table until it has enough.
    for search, used in (
        ("args.shop:1", "ojs_job_args_search"),
        ("meta.tenant_id:t1", "ojs_job_meta_search"),
        ("args.user_id:5 state:completed", "ojs_job_args_search"),
    ):
        which = parse(search).filter
        assert which is not None
        with CaptureQueriesContext(connection) as captured:
            listing.list_jobs(which)
        statements = [query["sql"] for query in captured.captured_queries]
        (probe,) = (each for each in statements if "LIMIT 5001" in each)
        assert (
            "set_config('enable_seqscan', 'off', true)" in statements[statements.index(probe) - 1]
        )
        with database.atomic(), database.connection().cursor() as cursor:
            cursor.execute("SET LOCAL enable_seqscan = off")
            cursor.execute("SET LOCAL enable_indexscan = off")
            cursor.execute("SET LOCAL enable_indexonlyscan = off")
            cursor.execute("EXPLAIN " + probe.replace("%", "%%"), [])
            plan = "\n".join(row[0] for row in cursor.fetchall())
        assert f"Bitmap Index Scan on {used}" in plan, plan
        with database.connection().cursor() as cursor:
            for statement in statements:
                if "ANY" in statement and "ojs_job" in statement:
                    cursor.execute("EXPLAIN " + statement.replace("%", "%%"), [])
                    plan = "\n".join(row[0] for row in cursor.fetchall())
                    assert "Seq Scan on ojs_job" not in plan, plan
            # The settings of the planner end with the block.
            cursor.execute("SHOW enable_seqscan")
            assert cursor.fetchone() == ("on",)
    # Of a value that many jobs have, the list reads the newest ones as without the index.
    which = parse("args.shop:1").filter
    assert which is not None
    monkeypatch.setattr(search_index, "MAX_JOBS", 100)
    assert search_index.find(which) is None
    assert len(listing.list_jobs(which).jobs) == 50


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("without_indexes")
def test_an_interrupted_creation_is_found_and_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    push(args=[{"user_id": 1}])
    assert {each["valid"] for each in ojs("index", "--json").json["indexes"]} == {None}
    monkeypatch.setattr(indexes, "_POLL", 0.01)
    shown, results = Terminal(), []

    def create() -> None:
        with own_connections():
            results.append(ojs("index", "args", "--create", err=shown))

    thread = threading.Thread(target=create)
    with database.atomic(), database.connection().cursor() as cursor:
        # It waits for this transaction.
        cursor.execute("LOCK TABLE ojs_job IN ROW EXCLUSIVE MODE")
        thread.start()
        eventually(lambda: "ojs_job_args_search: waiting for" in shown.getvalue(), "its progress")
        run = ojs("index", "args", "--create")
        assert run.code == 1
        assert "Another session is creating ojs_job_args_search (waiting for" in run.err
        assert ojs("index").code == ojs("doctor", "--only", "indexes").code == 0
        cursor.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_progress_create_index")
        thread.join()
    assert results[0].code == 1
    assert "ojs_job_args_search was not created: canceling statement" in results[0].err
    assert keys_of("args.user_id:1") == [jobs().get().pk]
    run = ojs("index")
    assert run.code == 1
    assert "not valid: create it again" in run.out
    (finding,) = ojs("doctor", "--only", "indexes", "--json").json["checks"][0]["findings"]
    assert "ojs_job_args_search is not valid" in finding["found"]
    assert finding["cure"] == "Run `manage.py ojs index --create`."
    assert ojs("index", "args", "--create").code == 0
    assert ojs("doctor", "--only", "indexes").code == 0
    states = {each["column"]: each["valid"] for each in ojs("index", "--json").json["indexes"]}
    assert states == {"args": True, "meta": None}
    size = ojs("index", "args", "--json").json["indexes"][0]["bytes"]
    assert size > 0
    assert ojs("index", "args", "--create").code == 0
    assert ojs("index", "--drop").code == 0
    assert ojs("index", "--drop").code == 0
    assert {each["valid"] for each in ojs("index", "--json").json["indexes"]} == {None}


@pytest.mark.django_db
def test_wrong_arguments_and_sqlite_are_told_plainly() -> None:
    run = ojs("index", "result")
    assert run.code
    assert "must be args or meta" in run.err
    if connection.vendor != "postgresql":
        for arguments in ([], ["--create"], ["--drop"]):
            run = ojs("index", *arguments)
            assert run.code == 1
            assert f"{connection.display_name} has no index on what JSON contains" in run.err
