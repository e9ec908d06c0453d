"""The import of the deliveries, and the stock that orders are taken from."""

from __future__ import annotations

import pytest

from django_ojs.testing import Drained, TestContext
from example_project.shop import jobs, stock
from example_project.shop.models import Stock
from tests.example_project.factories import delivered

pytestmark = pytest.mark.django_db


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Import only the first deliveries of the file."""
    rows = stock.deliveries()[:50]
    monkeypatch.setattr(stock, "deliveries", lambda: rows)


def in_stock() -> dict[str, int]:
    return dict(Stock.objects.values_list("product", "quantity"))


@pytest.mark.usefixtures("few")
def test_an_import_that_fails_half_way_counts_each_delivery_once(
    ojs: TestContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, pages = stock.receive, []

    def fail_once(rows: tuple[stock.Delivery, ...]) -> None:
        receive(rows)
        pages.append(len(rows))
        if len(pages) == 2:
            raise ConnectionError("the warehouse does not respond")

    monkeypatch.setattr(stock, "receive", fail_once)
    jobs.import_deliveries.enqueue()

    assert ojs.drain(with_retries=True) == Drained(retryable=1, completed=1)

    [job] = ojs.assert_completed(jobs.import_deliveries)
    assert job.result == {"deliveries": 50, "continued_after": 20}
    assert pages == [20, 20, 20, 10]
    assert in_stock() == delivered()


def test_every_product_that_is_ordered_is_delivered_except_the_one_that_is_sold_out() -> None:
    from example_project.shop.catalogue import baskets

    ordered = {line.product for basket in baskets() for line in basket.lines}
    assert ordered - set(delivered()) == stock.SOLD_OUT
