"""`steps.atomic`: rows and step commit together, once."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db import IntegrityError, connection, transaction

import django_ojs
from django_ojs.extensions import steps
from django_ojs.operations.fetch import fetch
from django_ojs.operations.workers import rescue
from django_ojs.testing import Drained, TestContext
from tests.extensions.steps.programs import Calls, Program
from tests.testapp.models import Thing

pytestmark = pytest.mark.django_db


def things() -> list[str]:
    return list(Thing.objects.order_by("pk").values_list("name", flat=True))


def test_rows_and_step_are_there_once(ojs: TestContext) -> None:
    after = Calls(fails=1)

    def reserves(ctx: django_ojs.JobContext) -> Any:
        with steps.atomic("reserve") as reserve:
            if reserve.pending:
                reserve.result = Thing.objects.create(name="reserved").name
        steps.run("after", after)
        return reserve.result

    program = Program(ojs, reserves)
    assert program.run(with_retries=True) == Drained(retryable=1, completed=1)
    assert things() == ["reserved"]
    assert program.job.result == "reserved"
    assert program.history[0] == ("reserve", "done")


def test_an_error_undoes_the_rows_and_the_step(ojs: TestContext) -> None:
    def fails(ctx: django_ojs.JobContext) -> None:
        with steps.atomic("reserve"):
            Thing.objects.create(name=f"attempt {ctx.attempt}")
            if ctx.attempt == 1:
                raise ValueError("sold out")

    program = Program(ojs, fails)
    assert program.run(with_retries=True) == Drained(retryable=1, completed=1)
    assert things() == ["attempt 2"]


def test_a_failed_one_that_the_handler_catches_fails_in_each_replay(ojs: TestContext) -> None:
    after, caught = Calls(fails=1), list[str]()

    def sells(ctx: django_ojs.JobContext) -> None:
        try:
            with steps.atomic("reserve"):
                raise ValueError("sold out")
        except ValueError as error:
            caught.append(str(error))
            steps.run("order more", Calls())
        steps.run("after", after)

    program = Program(ojs, sells)
    assert program.run(with_retries=True) == Drained(retryable=1, completed=1)
    assert program.history == [("reserve", "failed"), ("order more", "done"), ("after", "done")]
    assert caught == ["sold out", "sold out (the step 'reserve')"]


def test_a_run_that_has_lost_its_job_leaves_no_rows(ojs: TestContext) -> None:
    def loses(ctx: django_ojs.JobContext) -> None:
        with steps.atomic("reserve"):
            Thing.objects.create(name="reserved")
            rescue.rescue([str(ctx.job.worker_id)])
            fetch(["default"], count=1, worker_id="another", pool=None)

    program = Program(ojs, loses)
    program.run()
    assert things() == []
    assert program.steps == []


def test_a_result_that_cannot_be_stored_undoes_the_rows(ojs: TestContext) -> None:
    def bad(ctx: django_ojs.JobContext) -> None:
        with steps.atomic("reserve") as reserve:
            Thing.objects.create(name="reserved")
            reserve.result = {1, 2}

    program = Program(ojs, bad)
    assert program.run(with_retries=True) == Drained(discarded=1)
    assert "(the step 'reserve', which was rolled back)" in program.job.error["message"]
    assert things() == []


@pytest.mark.django_db(transaction=True)
def test_an_error_at_its_commit_that_the_handler_catches_fails_it_in_each_replay(
    ojs: TestContext,
) -> None:
    after, caught = Calls(fails=1), list[str]()

    def reserves(ctx: django_ojs.JobContext) -> None:
        try:
            with steps.atomic("reserve") as reserve:
                # The foreign key is checked at the commit.
                Permission.objects.create(content_type_id=10**6, codename="x", name="x")
                reserve.result = 1
        except (IntegrityError, steps.StepFailed) as error:
            caught.append(type(error).__name__)
        steps.run("after", after)

    program = Program(ojs, reserves)
    assert program.run(with_retries=True) == Drained(retryable=1, completed=1)
    assert program.history == [("reserve", "failed"), ("after", "done")]
    assert [step.value for step in program.steps] == [None, None]
    assert caught == ["IntegrityError", "StepFailed_IntegrityError"]


def test_its_transaction_is_ended_by_nothing_else(ojs: TestContext) -> None:
    def commits(ctx: django_ojs.JobContext) -> None:
        with steps.atomic("reserve"), connection.cursor() as cursor:
            cursor.execute("COMMIT")

    program = Program(ojs, commits)
    program.run()
    assert "cannot execute COMMIT" in program.job.error["message"]


def test_it_is_not_for_a_transaction_of_the_handler(ojs: TestContext) -> None:
    def careless(ctx: django_ojs.JobContext) -> None:
        with transaction.atomic(), steps.atomic("reserve"):
            Thing.objects.create(name="reserved")

    program = Program(ojs, careless)
    assert program.run(with_retries=True) == Drained(discarded=1)
    assert things() == []


def test_no_step_is_taken_in_it(ojs: TestContext) -> None:
    charge = Calls()

    def nested(ctx: django_ojs.JobContext) -> None:
        with steps.atomic("reserve"):
            steps.run("charge", charge)

    program = Program(ojs, nested)
    assert program.run(with_retries=True) == Drained(discarded=1)
    assert charge.made == []


def test_a_job_that_is_enqueued_in_it_is_stored_with_it(ojs: TestContext) -> None:
    from tests.testapp.testing_jobs import send

    def enqueues(ctx: django_ojs.JobContext) -> None:
        with steps.atomic("tell") as tell:
            if tell.pending:
                send.enqueue("ada")
                if ctx.attempt == 1:
                    raise ValueError("again")

    Program(ojs, enqueues)
    ojs.drain(with_retries=True)
    ojs.assert_performed(send, count=1)
