"""Bad input to the functions that enqueue: an error of ours that names the field and the rule.

Nothing is stored, nothing leaks, and the caller's transaction goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

import django_ojs as ojs
from django_ojs.models import Job, Queue
from django_ojs.spec.errors import (
    InvalidArgs,
    InvalidJobType,
    InvalidQueue,
    InvalidRequest,
    OJSError,
)
from tests.cases import case, together
from tests.client.bad_values import ARGS, IDS, NOT_A_LIST, OPTIONS, QUEUES, TOO_LARGE, TYPES, Bad
from tests.testapp.jobs import add, describe, echo
from tests.testapp.models import Thing

pytestmark = [pytest.mark.django_db, pytest.mark.once]

Enqueue = Callable[[Any, dict[str, Any]], object]

#: Every way of passing args and options, however the job is described.
WAYS: dict[str, Enqueue] = {
    "enqueue": lambda args, options: ojs.enqueue("test.bad", args, **options),
    "enqueue_after_commit": lambda args, options: ojs.enqueue_after_commit(
        "test.bad", args, **options
    ),
    "aenqueue": lambda args, options: async_to_sync(ojs.aenqueue)("test.bad", args, **options),
    "enqueue_batch": lambda args, options: ojs.enqueue_batch(
        [ojs.request("test.good"), ojs.request("test.bad", args, **options)]
    ),
    "handler": lambda args, options: echo.options(**options).enqueue(*args),
    "handler.request": lambda args, options: ojs.enqueue_batch(
        [echo.request("good"), echo.options(**options).request(*args)]
    ),
}
VALUES = ("hunter2", "4711", "19.99", "7d444840", "2031-05-06")


@contextmanager
def rejected(error: type[OJSError], says: str) -> Iterator[list[OJSError]]:
    """Expect this very error in a transaction that goes on, with no job stored and no leak."""
    found: list[OJSError] = []
    with transaction.atomic():
        Thing.objects.create(name="before")
        with pytest.raises(OJSError) as caught:
            yield found
        Thing.objects.create(name="after")
    found.append(caught.value)
    assert type(caught.value) is error
    assert str(caught.value).startswith(says)
    reported = f"{caught.value} {caught.value.details} {caught.value.hint}"
    assert not [value for value in VALUES if value in reported]
    assert Thing.objects.count() == 2
    assert Job.objects.count() == 0


@together("bad", [*ARGS, *OPTIONS, TOO_LARGE], ids=lambda bad: bad.name, undo=True)
def test_what_no_job_may_have_is_rejected_where_it_is_enqueued(bad: Bad) -> None:
    for name, way in WAYS.items():
        with case(name), rejected(bad.error, bad.says):
            way(bad.args, bad.options)


@together("bad", ARGS, ids=lambda bad: bad.name, undo=True)
def test_a_step_of_a_workflow_may_not_have_it_either(bad: Bad) -> None:
    with rejected(bad.error, "steps[1]") as found:
        ojs.chain(ojs.request("test.good"), ojs.request("test.bad", bad.args)).enqueue()
    assert bad.says in found[0].message


@pytest.mark.parametrize("bad", NOT_A_LIST, ids=lambda bad: bad.name)
def test_args_are_a_list(bad: Bad) -> None:
    for name, way in WAYS.items():
        if "handler" not in name:
            with case(name), rejected(bad.error, bad.says):
                way(bad.args, bad.options)


@together(("type_", "says"), TYPES, undo=True)
def test_a_type_follows_the_naming_rule(type_: Any, says: str) -> None:
    with pytest.raises(InvalidJobType) as single:
        ojs.enqueue(type_, [])
    with pytest.raises(InvalidJobType) as batch:
        ojs.enqueue_batch([ojs.request("test.good"), ojs.request(type_, [])])
    for caught in (single, batch):
        assert str(caught.value).startswith(says)
        assert "unter2" not in f"{caught.value} {caught.value.details}"
    assert batch.value.details["index"] == 1
    assert Job.objects.count() == 0


@together(
    ("item", "where"),
    [
        (("test.bad", ["hunter2"]), 1),
        ({"type": "test.bad", "args": []}, 1),
        (None, 1),
        (4711, 1),
        ("hunter2", 1),
        (echo, 1),
    ],
    undo=True,
)
def test_a_batch_holds_requests_only(item: Any, where: int) -> None:
    with rejected(InvalidRequest, "requests[1] must be made by ojs.request()") as found:
        ojs.enqueue_batch([ojs.request("test.good"), item, ojs.request("test.good")])
    assert found[0].details == {"index": where}


@pytest.mark.parametrize("requests", [[], (), iter(()), None, 4711])
def test_a_batch_holds_something(requests: Any) -> None:
    with rejected(InvalidRequest, "requests must be a list of at least one request"):
        ojs.enqueue_batch(requests)


def test_a_request_that_was_put_together_by_hand_is_checked_too() -> None:
    odd: Any = {"queue": "hunter2"}
    with rejected(InvalidRequest, "options must be"):
        ojs.enqueue_batch([ojs.Request(type="test.bad", args=[], options=odd)])


@together(
    "bad",
    # What is no option is rejected before there is a batch.
    [ARGS[0], *(bad for bad in OPTIONS if "color" not in bad.options)],
    ids=lambda bad: bad.name,
    undo=True,
)
def test_the_error_of_a_batch_says_which_job_it_is_about(bad: Bad) -> None:
    for index in (0, 2):
        requests = [ojs.request("test.good") for _ in range(3)]
        requests[index] = ojs.request("test.bad", bad.args, **bad.options)
        with case(f"index {index}"):
            with rejected(bad.error, bad.says) as found:
                ojs.enqueue_batch(requests)
            assert found[0].details["index"] == index


#: The handlers as they look without their types: what mypy would find is tried here.
ADD: Any = add
DESCRIBE: Any = describe


@together(
    ("enqueue", "says"),
    [
        (lambda: ADD.enqueue(), "missing a required argument: 'a'"),
        (lambda: ADD.enqueue(1, 2, 3, 4711), "too many positional arguments"),
        (lambda: ADD.enqueue(1, a=4711), "multiple values for argument 'a'"),
        (lambda: ADD.enqueue(1, d=4711), "got an unexpected keyword argument 'd'"),
        (lambda: ADD.options(priority=1).enqueue(b=4711), "missing a required argument: 'a'"),
        (lambda: ADD.request(), "missing a required argument: 'a'"),
        (lambda: ADD.enqueue_after_commit(), "missing a required argument: 'a'"),
        (lambda: async_to_sync(ADD.aenqueue)(), "missing a required argument: 'a'"),
        (lambda: DESCRIBE.enqueue("hello", "hunter2"), "too many positional arguments"),
        (lambda: DESCRIBE.enqueue(), "missing a required argument: 'greeting'"),
    ],
    undo=True,
)
def test_arguments_fit_the_handler(enqueue: Callable[[], object], says: str) -> None:
    with rejected(InvalidArgs, "The arguments do not fit testapp.") as found:
        enqueue()
    assert says in str(found[0])
    assert found[0].details == {"field": "args"}


LOOKS: list[Callable[[Any], object]] = [
    ojs.cancel,
    ojs.get_job,
    ojs.activate,
    ojs.retry,
    async_to_sync(ojs.acancel),
    async_to_sync(ojs.aget_job),
    async_to_sync(ojs.aactivate),
    async_to_sync(ojs.aretry),
]


@together("job_id", IDS, undo=True)
def test_an_id_is_a_uuid_of_version_7(job_id: object) -> None:
    for look in LOOKS:
        with case(repr(look)), rejected(InvalidRequest, "id must be a UUIDv7"):
            look(job_id)


PAUSES: list[Callable[[Any], object]] = [
    ojs.pause_queue,
    ojs.drain_queue,
    ojs.resume_queue,
    async_to_sync(ojs.apause_queue),
    async_to_sync(ojs.adrain_queue),
    async_to_sync(ojs.aresume_queue),
]


@together("pause", PAUSES, undo=True)
@together(("name", "says"), QUEUES, undo=True)
def test_a_queue_s_name_follows_the_rule(
    pause: Callable[[Any], object], name: object, says: str
) -> None:
    with transaction.atomic():
        with pytest.raises(InvalidQueue) as caught:
            pause(name)
        Thing.objects.create(name="after")
    assert str(caught.value).startswith(says)
    assert "unter2" not in f"{caught.value} {caught.value.details}"
    assert Queue.objects.count() == 0
