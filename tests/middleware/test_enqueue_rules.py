"""What an enqueue middleware may not do."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import override_settings

import django_ojs as ojs
from django_ojs.middleware import EnqueueNext, enqueue_chain
from django_ojs.models import Job
from django_ojs.spec import ids
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.errors import InvalidArgs, InvalidQueue, InvalidRequest, OJSError
from tests.cases import together
from tests.middleware.samples import First
from tests.middleware.test_enqueue import chain, changing, drop

pytestmark = pytest.mark.django_db


def test_the_id_stays() -> None:
    def change(envelope: Envelope) -> None:
        envelope.id = ids.uuid7()

    def replace(envelope: Envelope, proceed: EnqueueNext) -> Envelope | None:
        return proceed(Envelope(type=envelope.type))

    for middleware in (changing(change), replace):
        with (
            chain(middleware),
            pytest.raises(InvalidRequest, match="id must not be changed by an enqueue middleware"),
        ):
            ojs.enqueue("test.middleware")
    assert Job.objects.count() == 0


@together(
    ("field", "value", "error", "says"),
    [
        ("args", [object()], InvalidArgs, r"^args\[0\] is a object"),
        ("args", None, InvalidArgs, "^args must be an array"),
        ("queue", "Not A Queue", InvalidQueue, "^queue must consist of"),
        ("type", "", OJSError, "^type must be"),
        ("meta", None, OJSError, "^meta must be an object"),
        ("meta", {"a": {1}}, OJSError, "^meta.a is a set"),
        ("priority", 101, InvalidRequest, "^priority must be between"),
        ("timeout_ms", 1.5, InvalidRequest, "^timeout_ms must be a positive integer"),
        ("scheduled_at", "tomorrow", InvalidRequest, "^scheduled_at must be a datetime"),
        ("retry", {"max_attempts": 1}, OJSError, "^retry must be a retry policy"),
        ("tags", "a", InvalidRequest, "^tags must be an array of strings"),
    ],
    undo=True,
)
def test_what_it_makes_is_checked_like_what_a_client_sends(
    field: str, value: Any, error: type[OJSError], says: str
) -> None:
    with chain(changing(lambda envelope: setattr(envelope, field, value))):
        with pytest.raises(error, match=says):
            ojs.enqueue("test.middleware")
        with pytest.raises(error, match=says) as batch:
            ojs.enqueue_batch([ojs.request("test.middleware")] * 2)
    assert batch.value.details["index"] == 0
    assert Job.objects.count() == 0


def test_what_it_gets_has_been_checked_already() -> None:
    def never(envelope: Envelope) -> None:
        raise AssertionError("A job that breaks a rule reached the middleware.")

    with chain(changing(never)), pytest.raises(InvalidRequest, match="priority"):
        ojs.enqueue("test.middleware", priority=101)


def test_calling_proceed_twice_is_an_error() -> None:
    def twice(envelope: Envelope, proceed: EnqueueNext) -> Envelope | None:
        proceed(envelope)
        return proceed(envelope)

    with chain(twice), pytest.raises(RuntimeError, match=r"called proceed\(\) twice"):
        ojs.enqueue("test.middleware")
    assert Job.objects.count() == 0


@together("nonsense", [True, "envelope", {"type": "test.middleware"}], undo=True)
@together("by", ["returning", "proceeding"], undo=True)
def test_passing_on_something_else_names_the_middleware(nonsense: Any, by: str) -> None:
    def confused(envelope: Envelope, proceed: EnqueueNext) -> Envelope | None:
        return proceed(nonsense) if by == "proceeding" else nonsense

    with chain(First, confused), pytest.raises(TypeError, match="confused' must pass on"):
        ojs.enqueue("test.middleware")
    assert Job.objects.count() == 0


@pytest.mark.parametrize("middleware", [[], [First], [drop]])
def test_the_first_job_freezes_the_chain_even_an_empty_one(middleware: list[Any]) -> None:
    with chain(*middleware):
        ojs.enqueue("test.middleware")
        with pytest.raises(RuntimeError, match="in use"):
            enqueue_chain().add(First)


def test_other_settings_begin_a_chain_that_is_not_frozen() -> None:
    with override_settings(OJS={}):
        ojs.enqueue("test.middleware")
        with override_settings(OJS={"EXACT_INTEGERS": True}):
            enqueue_chain().add(First)
            assert len(enqueue_chain()) == 1
