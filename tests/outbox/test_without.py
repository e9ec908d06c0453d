"""A site without the outbox: what would need it says so, and a cron job waits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import transaction
from django.test import override_settings

import django_ojs as ojs
from django_ojs.extensions.cron import operations as cron
from django_ojs.hooks import registry
from django_ojs.models import Job
from django_ojs.operations import queues
from django_ojs.spec.errors import UnsupportedFeature, WrongDatabase
from tests.operations.cron.scenes import register, tick

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


@pytest.fixture(autouse=True)
def _without_outbox() -> Iterator[None]:
    (extension,) = (each for each in registry.extensions() if each.name == "outbox")
    registry.remove(extension)
    yield
    registry.register(extension)


def test_an_enqueue_that_wants_the_outbox_says_the_line_to_add() -> None:
    line = 'Add "django_ojs.extensions.outbox" to INSTALLED_APPS'
    with pytest.raises(UnsupportedFeature, match=line):
        ojs.enqueue("test.job", [], on_full="outbox")


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("error", r"inside atomic\(using='other'\)"),
        ("outbox", r'Add "django_ojs\.extensions\.outbox" to INSTALLED_APPS'),
    ],
)
def test_a_transaction_of_another_database_takes_no_job(wanted: str, said: str) -> None:
    with (
        override_settings(OJS={"WRONG_DATABASE": wanted}),
        transaction.atomic(using="other"),
        pytest.raises(WrongDatabase, match=said),
    ):
        ojs.enqueue("test.job", [])
    assert not Job.objects.exists()


def test_a_cron_job_whose_queue_is_full_is_due_until_there_is_room() -> None:
    queues.configure("default", {"max_size": 1})
    register("a")
    ojs.enqueue("test.job", [])
    tick("a")
    assert cron.get("a").run_count == 0
    assert Job.objects.count() == 1
    Job.objects.all().delete()
    tick("a")
    assert cron.get("a").run_count == 1
    assert Job.objects.get().meta["cron_name"] == "a"
