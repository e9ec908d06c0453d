"""A plain `@task` of the shop commits with the delivery, and a worker runs it."""

from __future__ import annotations

from email import message_from_bytes, policy
from pathlib import Path

import pytest

from django_ojs.models import Job
from example_project.demo.cleanup import STOCK_ALERT_JOB
from example_project.shop.models import Stock, StockAlert
from tests.databases import ALIASES
from tests.example_project.factories import StockAlertFactory
from tests.shells import Shell
from tests.worker.acceptance.conftest import Start, start
from tests.worker.waiting import eventually

__all__ = ["start"]  # a fixture

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.slow,
    pytest.mark.smoke,
]

SETTINGS = "tests.example_project.settings"
#: The first delivery rolls back when its second line cannot be stored.
DELIVERIES = """
from contextlib import suppress
from django.db import DataError, IntegrityError, transaction
from example_project.shop.stock import Delivery, receive

for second in (Delivery(product="Copper pan", quantity=-1), Delivery(product="Whisk", quantity=2)):
    with suppress(DataError, IntegrityError), transaction.atomic():
        receive([Delivery(product="Enamel mug", quantity=5)])
        receive([second])
"""


def test_customers_are_alerted_to_what_has_arrived_and_to_nothing_that_rolled_back(
    process_environment: dict[str, str], start: Start, tmp_path: Path
) -> None:
    alerted, _ = StockAlertFactory(), StockAlertFactory(product="Copper pan")
    variables = {"DJANGO_SETTINGS_MODULE": SETTINGS, "OJS_DEMO_VAR": str(tmp_path)}
    Shell({**process_environment, **variables}, DELIVERIES).ends()

    job = Job.objects.get()
    assert (job.type, job.args, job.queue) == (STOCK_ALERT_JOB, [alerted.pk], "default")
    assert Stock.objects.get(product="Enamel mug").quantity == 5
    assert list(StockAlert.objects.filter(arrived=True)) == [alerted]

    tree = start("--queues", "default", **variables).ready()
    eventually(
        lambda: Job.objects.filter(state="completed").exists(),
        f"the task has run; the worker said:\n{tree.log}",
    )
    (file,) = tmp_path.glob("*/mail/*.eml")
    message = message_from_bytes(file.read_bytes(), policy=policy.default)
    assert message["To"] == "ada@example.com"
    assert message["Subject"] == "Enamel mug is in stock again"
