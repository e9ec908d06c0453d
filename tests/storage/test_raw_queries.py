"""Rows by written statements: the same as the ORM's."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from django_ojs.extensions.cron.models import CronJob, CronRun
from django_ojs.models import ApiKey, Job, Worker
from django_ojs.operations import ack, info
from django_ojs.operations.access import api_keys
from django_ojs.spec.errors import JobNotFound
from django_ojs.spec.ids import uuid7
from django_ojs.spec.scopes import Scope
from django_ojs.spec.states import State
from django_ojs.storage import api_keys as stored_keys
from django_ojs.storage import database, raw_queries
from tests import factories
from tests.cases import together
from tests.model_factories import ApiKeyFactory
from tests.operations.cron.scenes import register

HOUR = timedelta(hours=1)

_RUN = ("name", "job_id", "scheduled_at", "triggered_by", "phase")
_OF_CRON_JOB = ("run_count", "skipped_for", "last_run_at", "due_at", "description")

pytestmark = pytest.mark.django_db


@together("state", State, undo=True)
def test_a_job_is_read_as_the_orm_reads_it(state: State) -> None:
    made = factories.in_state(
        state, args=[1e300, {"a": [None, "ü"]}], meta={"trace": "x"}, tags=["t"], expires_at=HOUR
    )

    read = info.info(made.pk)

    assert _values(read) == _values(factories.jobs().get(pk=made.pk))
    assert (read._state.adding, read._state.db) == (False, database.alias())


def test_a_result_is_read_as_the_orm_reads_it() -> None:
    job = factories.active()
    ack.ack(job.id, result={"large": 1e300, "small": 1})

    assert info.info(job.id).result == factories.jobs().get(pk=job.id).result


def test_a_worker_is_read_as_the_orm_reads_it() -> None:
    factories.WorkerFactory()

    (read,) = raw_queries.rows(Worker, "id = %s", [factories.WORKER])

    assert _values(read) == _values(Worker.primary.get())


def test_rows_of_a_query_are_read_as_the_orm_reads_them() -> None:
    register("a", template={"args": [1e300, "ü"]})
    register("b", description="text")
    query = CronJob.primary.order_by("-name")

    assert [_values(row) for row in raw_queries.read_instances(query)] == [
        _values(row) for row in query
    ]
    pairs = query.values_list("name", "due_at")
    assert raw_queries.read(pairs) == list(pairs)


def test_many_rows_are_stored_as_the_orm_stores_them() -> None:
    moment = datetime(2030, 1, 31, 23, 59, 59, 123456, tzinfo=UTC)
    text = 'Zoë "the" \\ 😀\'s {0} %s'
    names, keys = ["a", "b"], [uuid7(), uuid7()]
    for name in names:
        register(name)
    rows = [(name, key, moment, text, "open") for name, key in zip(names, keys, strict=True)]

    raw_queries.insert(CronRun, _RUN, rows)
    raw_queries.insert(CronRun, ("name",), [])

    stored = CronRun.primary.order_by("id")
    assert list(stored.values_list(*_RUN)) == rows
    # The same text in the database: it is found by its value.
    assert stored.filter(job_id=keys[0], scheduled_at=moment).count() == 1

    cron_jobs = list(CronJob.primary.order_by("name"))
    for number, each in enumerate(cron_jobs):
        each.run_count, each.skipped_for, each.last_run_at = number, keys[number], moment
        each.due_at, each.description = None, text
    raw_queries.update(CronJob, cron_jobs, _OF_CRON_JOB)

    assert [_values(row) for row in CronJob.primary.order_by("name")] == [
        _values(row) for row in cron_jobs
    ]
    assert CronJob.primary.filter(last_run_at=moment, due_at=None).count() == 2


def test_a_key_is_read_as_the_orm_reads_it_and_says_what_time_it_is() -> None:
    plain, _ = ApiKeyFactory()
    all_, _ = ApiKeyFactory(
        name='Zoë "the" \\ 😀\'s {0} %s', scopes=list(Scope), queues=["a", "b"], expires=HOUR
    )
    moment = datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=UTC)
    ApiKey.objects.filter(pk=all_.pk).update(last_used_at=moment, rejected_at=moment)
    ended, _ = ApiKeyFactory()
    api_keys.revoke(ended.prefix)

    for key in (plain, all_, ended):
        read = stored_keys.find(key.prefix)

        stored = api_keys.keys().get(prefix=key.prefix)
        assert read is not None
        assert asdict(read) | {"id": read.pk} == _values(stored) | {"pk": key.pk, "now": read.now}
        assert timedelta(0) <= stored.now - read.now < timedelta(minutes=1)
        assert read.created_at <= read.now


@pytest.mark.postgresql
def test_a_key_is_read_alike_in_a_session_of_another_zone_and_style_of_dates() -> None:
    key, _ = ApiKeyFactory(expires=HOUR)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL TimeZone = 'Asia/Kathmandu'; SET LOCAL DateStyle = 'SQL, DMY'")
    read = stored_keys.find(key.prefix)
    assert read is not None
    assert (read.created_at, read.expires_at) == (key.created_at, key.expires_at)


def test_what_is_not_there_is_not_found() -> None:
    assert raw_queries.rows(Job, "id = %s", [uuid7().hex]) == []
    assert stored_keys.find("nobody") is None
    with pytest.raises(JobNotFound):
        info.info(uuid7())


def test_a_job_that_never_failed_is_shown_by_one_statement(
    django_assert_num_queries: object,
) -> None:
    waiting, running = factories.push(), factories.active()

    for key in (waiting.pk, running.id):
        with django_assert_num_queries(1, using=database.alias()):  # type: ignore[operator]  # the plugin's fixture
            assert "errors" not in info.info(key).envelope()


def _values(row: ApiKey | Job | Worker) -> dict[str, object]:
    return {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}
