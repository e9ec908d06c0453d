"""What the database itself rejects, whoever writes: each constraint against raw SQL."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DataError, IntegrityError, connection, models, transaction

from django_ojs.models import Attempt, Job, Lease, Queue, Worker
from django_ojs.operations import queues
from django_ojs.spec.states import State
from django_ojs.storage.figures import counts
from tests.cases import together
from tests.factories import WorkerFactory, active, in_state, push

pytestmark = pytest.mark.django_db
NOW = "CURRENT_TIMESTAMP"
ENDED = ["completed", "cancelled", "discarded"]
OPEN = ["scheduled", "available", "pending", "active", "retryable"]

# The constraint, the state of a job that keeps it, and what breaks it.
VIOLATIONS = [
    ("ojs_job_state", "available", "state = 'done'"),
    ("ojs_job_state", "available", "state = ''"),
    ("ojs_job_priority", "available", "priority = 101"),
    ("ojs_job_priority", "available", "priority = -101"),
    ("ojs_job_active_has_lease", "active", "lease_until = NULL"),
    ("ojs_job_active_has_lease", "active", "started_at = NULL"),
    ("ojs_job_active_has_lease", "available", "state = 'active'"),
    ("ojs_job_waiting_has_due_time", "scheduled", "due_at = NULL"),
    ("ojs_job_waiting_has_due_time", "retryable", "due_at = NULL"),
    ("ojs_job_waiting_has_due_time", "available", "state = 'scheduled'"),
    *[("ojs_job_finished_has_time", state, "finished_at = NULL") for state in ENDED],
    *[("ojs_job_finished_has_time", state, f"finished_at = {NOW}") for state in OPEN],
    ("ojs_job_finished_has_time", "active", "state = 'completed', lease_until = NULL"),
    ("ojs_job_dead_letter", "completed", "dead_letter = true"),
    ("ojs_job_dead_letter", "available", "dead_letter = true"),
]
NEVER_NEGATIVE = [
    *("attempt", "max_attempts", "returned", "lost_with_others", "run", "hold"),
    *("timeout_ms", "visibility_timeout_ms", "lease_ms"),
]
#: MariaDB says that the number does not fit into the type of the column.
NEGATIVE = DataError if connection.vendor == "mysql" else IntegrityError
ALWAYS_THERE = ["type", "queue", "state", "priority", "args", "meta", "options", "created_at"]


def execute(sql: str, *parameters: Any) -> None:
    """Run one statement in a savepoint of its own, deferred constraints included."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        connection.check_constraints()


def key(job_id: Any) -> Any:
    return Job._meta.pk.get_db_prep_value(job_id, connection)


def change(job_id: Any, what: str) -> None:
    execute(f"UPDATE ojs_job SET {what} WHERE id = %s", key(job_id))


@together(("name", "state", "change_it"), VIOLATIONS, undo=True)
def test_a_job_that_breaks_a_constraint_is_rejected_by_its_name(
    name: str, state: str, change_it: str
) -> None:
    job = in_state(state)
    change(job.pk, "run = run + 1")
    with pytest.raises(IntegrityError, match=name):
        change(job.pk, change_it)


def test_every_constraint_of_the_job_is_tried() -> None:
    declared = {constraint.name for constraint in Job._meta.constraints}
    assert declared == {name for name, _, _ in VIOLATIONS}


@pytest.mark.parametrize("column", NEVER_NEGATIVE)
def test_what_is_counted_is_never_negative(column: str) -> None:
    job = push()
    with pytest.raises(NEGATIVE, match=column):
        change(job.pk, f"{column} = -1")


def test_every_column_that_is_never_negative_is_tried() -> None:
    positive = (
        models.PositiveSmallIntegerField,
        models.PositiveIntegerField,
        models.PositiveBigIntegerField,
    )
    found = [field.name for field in Job._meta.concrete_fields if isinstance(field, positive)]
    assert sorted(found) == sorted(NEVER_NEGATIVE)


#: What an error of PostgreSQL says, or None.
BROKEN = """
CREATE FUNCTION pg_temp.broken({parameters}) RETURNS text LANGUAGE plpgsql AS $$
DECLARE name text;
BEGIN
    PERFORM ojs_job_is_valid({names});
    RETURN NULL;
EXCEPTION WHEN check_violation THEN
    GET STACKED DIAGNOSTICS name = CONSTRAINT_NAME;
    RETURN name;
END $$
"""


@pytest.mark.postgresql
def test_postgresql_keeps_the_constraints_of_the_model_as_one() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE conrelid = 'ojs_job'::regclass AND contype = 'c'"
        )
        ((name, definition),) = cursor.fetchall()
        assert name == "ojs_job_is_valid"
        cursor.execute("SELECT proargnames FROM pg_proc WHERE proname = 'ojs_job_is_valid'")
        ((parameters,),) = cursor.fetchall()
    # Each column is the argument of its own name.
    assert definition == f"CHECK (ojs_job_is_valid({', '.join(parameters)}))"


@pytest.mark.postgresql
def test_it_rejects_what_the_constraints_of_the_model_reject_and_nothing_else() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT proargnames, pg_get_function_identity_arguments(oid) FROM pg_proc"
            " WHERE proname = 'ojs_job_is_valid'"
        )
        ((names, parameters),) = cursor.fetchall()
        cursor.execute(BROKEN.format(parameters=parameters, names=", ".join(names)))
        editor = connection.schema_editor(collect_sql=True)
        conditions = {
            constraint.name: constraint._get_check_sql(Job, editor)
            for constraint in Job._meta.constraints
        }
        rejected = ", ".join(
            f"CASE WHEN NOT {condition} THEN '{name}' END" for name, condition in conditions.items()
        )
        times = ("due_at", "started_at", "lease_until", "finished_at")
        cursor.execute(
            f"SELECT pg_temp.broken({', '.join(names)}), array_remove(ARRAY[{rejected}], NULL) FROM"
            " (SELECT 0 AS attempt, 0 AS max_attempts, 0 AS returned, 0 AS lost_with_others,"
            " 0 AS run, 0::smallint AS hold, NULL::bigint AS timeout_ms,"
            " NULL::bigint AS visibility_timeout_ms, NULL::bigint AS lease_ms) AS numbers,"
            " unnest(%s::varchar[]) AS state, unnest(%s::smallint[]) AS priority,"
            " unnest(ARRAY[true, false]) AS dead_letter, "
            + ", ".join(f"unnest(ARRAY[now(), NULL]) AS {name}" for name in times),
            [[*State, "done", ""], [-101, -100, 0, 100, 101]],
        )
        found = cursor.fetchall()
    assert len(found) == 10 * 5 * 2 * 2 ** len(times)
    for broken, of_model in found:
        assert broken in of_model if of_model else broken is None
    assert {broken for broken, _ in found} == {None, *conditions}


@together("column", ALWAYS_THERE, undo=True)
def test_what_every_job_has_is_never_null(column: str) -> None:
    job = push()
    with pytest.raises(IntegrityError, match=column):
        change(job.pk, f"{column} = NULL")


def test_two_jobs_never_have_the_same_id() -> None:
    first, second = push(), push()
    with pytest.raises(IntegrityError):
        execute("UPDATE ojs_job SET id = %s WHERE id = %s", key(first.pk), key(second.pk))


def test_an_attempt_belongs_to_a_job_that_exists() -> None:
    job = in_state("retryable")
    with pytest.raises(IntegrityError):
        execute("DELETE FROM ojs_job WHERE id = %s", key(job.pk))
    with pytest.raises(IntegrityError):
        execute("UPDATE ojs_attempt SET job_id = %s", key(job.pk.__class__(int=7 << 76)))
    assert Attempt.objects.get().job_id == job.pk


@pytest.mark.parametrize("column", ["attempt", "run", "retry_delay_ms"])
def test_an_attempt_counts_like_its_job(column: str) -> None:
    in_state("retryable")
    with pytest.raises(NEGATIVE, match=column):
        execute(f"UPDATE ojs_attempt SET {column} = -1")


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("ojs_attempt", "outcome"),
        ("ojs_attempt", "finished_at"),
        ("ojs_worker", "seen_at"),
        ("ojs_worker", "dead_after_ms"),
        ("ojs_queue", "created_at"),
    ],
)
def test_other_tables_know_what_they_cannot_do_without(table: str, column: str) -> None:
    in_state("retryable")
    WorkerFactory()
    queues.pause("a")
    with pytest.raises(IntegrityError, match=column):
        execute(f"UPDATE {table} SET {column} = NULL")


@pytest.mark.parametrize(("model", "name"), [(Queue, "name"), (Worker, "id"), (Lease, "name")])
def test_names_are_unique(model: Any, name: str) -> None:
    pair = ("one", "two")
    values: dict[str, Any] = {
        "ojs_worker": {"seen_at": "2026-01-01T00:00:00Z", "dead_after_ms": 1},
        "ojs_lease": {"holder": "a", "until": "2026-01-01T00:00:00Z"},
    }.get(model._meta.db_table, {})
    model.objects.bulk_create([model(**{name: each} | values) for each in pair])
    with pytest.raises(IntegrityError):
        execute(f"UPDATE {model._meta.db_table} SET {name} = 'one'")


def test_a_queue_has_one_count_of_a_state() -> None:
    push(queue="one")
    push(queue="two")
    counts.fold()
    with pytest.raises(IntegrityError):
        execute("UPDATE ojs_count SET queue = 'one'")


def test_a_state_that_waits_for_nothing_may_carry_old_times() -> None:
    # Times are a history; only the state determines which of them must be set.
    job = active()
    change(job.id, f"due_at = {NOW}, expires_at = {NOW}, activated_at = {NOW}")
    change(job.id, f"state = 'completed', finished_at = {NOW}, lease_until = NULL")
