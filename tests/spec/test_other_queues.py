"""Who types what another task queue calls it is told what it is called here."""

from __future__ import annotations

import pytest

import django_ojs as ojs
from django_ojs.enqueue_options import OptionArguments
from django_ojs.handlers import Enqueuer
from django_ojs.operations.enqueue.result import EnqueuedJob
from django_ojs.spec import other_queues
from django_ojs.spec.errors import InvalidRequest
from tests.cases import together

NAMES = [name.split(".") for row in other_queues.ROWS for name in row.names.split()]
#: On what each kind of name is looked for.
PLACES = {
    "handler": Enqueuer,
    "enqueued": EnqueuedJob,
    "context": ojs.JobContext,
    "ojs": ojs,
}


def test_a_name_is_once_in_the_table() -> None:
    assert len(NAMES) == len({tuple(name) for name in NAMES})


@together(("on", "name"), NAMES, ids=str)
def test_a_name_of_the_table_is_no_name_here(on: str, name: str) -> None:
    if on == "option":
        assert name not in OptionArguments.__annotations__
    else:
        assert name not in dir(PLACES[on])


@together(
    ("on", "name", "here"),
    [
        ("option", "eta", "scheduled_at=…"),
        ("option", "countdown", "scheduled_at=timedelta(seconds=60)"),
        ("option", "max_retries", "max_retries=3 of Celery is here: retry=ojs.RetryPolicy("),
        ("handler", "delay", "f.delay(x) of Celery is here: f.enqueue(x)."),
        ("enqueued", "get", "ojs.get_job(id).result"),
        ("context", "retry", "raise ojs.Retry("),
        ("ojs", "chord", "ojs.batch("),
        ("ojs", "beat", "@ojs.cron("),
        ("handler", "apply", "the inline mode of tests."),
    ],
)
def test_an_error_says_what_is_called_otherwise(on: str, name: str, here: str) -> None:
    if on == "option":
        with pytest.raises(InvalidRequest) as caught:
            ojs.request("mail.send", **{name: 1})  # type: ignore[arg-type]
        assert here in str(caught.value.hint)
        return
    place = PLACES[on]
    made = place if on == "ojs" else object.__new__(place)  # type: ignore[call-overload]
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'") as missing:
        getattr(made, name)
    assert here in str(missing.value)


def test_any_other_name_is_only_unknown() -> None:
    with pytest.raises(AttributeError) as caught:
        ojs.no_such_name  # noqa: B018
    assert str(caught.value) == "module 'django_ojs' has no attribute 'no_such_name'."
    with pytest.raises(InvalidRequest) as unknown:
        ojs.request("mail.send", no_such_option=1)  # type: ignore[call-arg]
    assert unknown.value.hint is None
