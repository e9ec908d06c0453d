"""A view of a project that was moved over from Celery, and a real worker."""

from __future__ import annotations

from types import ModuleType

import pytest
from django.db import transaction

from django_ojs.models import Job
from tests.testapp.models import Thing
from tests.worker.acceptance.conftest import Start, start
from tests.worker.waiting import eventually

__all__ = ["start"]  # a fixture

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.slow,
    pytest.mark.smoke,
]


def test_tasks_commit_with_the_rows_of_a_view_and_run(shop: ModuleType, start: Start) -> None:
    with transaction.atomic():
        shop.work.delay()
        transaction.set_rollback(True)
    assert not Job.objects.exists()

    with transaction.atomic():
        shop.work.apply_async(queue="slow-work")
        last = (shop.add.s(1, 2) | shop.counter.s()).delay()
        failed = shop.look_up.delay("x")
    tree = start(
        "--queues", "default,slow-work", DJANGO_SETTINGS_MODULE="tests.contrib.celery.settings"
    ).ready()
    eventually(
        lambda: failed.ready() and last.ready() and Thing.objects.exists(),
        f"the tasks have run; the worker said:\n{tree.log}",
    )
    assert (last.get(), failed.state) == (4, "FAILURE")
    assert Thing.objects.get().name == "worked"
