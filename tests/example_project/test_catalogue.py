"""The order book is big enough, plausible and the same for everybody."""

from __future__ import annotations

from decimal import Decimal

import pytest

from example_project.shop import cards
from example_project.shop.catalogue import baskets
from example_project.shop.stock import SOLD_OUT


def test_it_holds_thousands_of_orders_under_references_of_their_own() -> None:
    references = {basket.reference for basket in baskets()}
    assert len(references) == len(baskets()) >= 2500


def test_quantities_and_prices_are_plausible() -> None:
    lines = [line for basket in baskets() for line in basket.lines]
    assert {line.quantity for line in lines} == set(range(1, 10))
    assert all(0 < line.unit_price < 100 for line in lines)
    assert all(line.unit_price.as_tuple().exponent == -2 for line in lines)


def test_nobody_real_gets_an_email() -> None:
    assert {basket.email.partition("@")[2] for basket in baskets()} == {
        "example.com",
        "example.org",
    }


def test_names_are_written_in_three_scripts() -> None:
    letters = {letter for basket in baskets() for letter in basket.customer}
    assert {"ł", "ß", "ő", "Σ", "ш"} <= letters


def test_about_every_twelfth_order_is_for_something_sold_out() -> None:
    sold_out = [b for b in baskets() if any(line.product in SOLD_OUT for line in b.lines)]
    assert 0.06 < len(sold_out) / len(baskets()) < 0.10


def test_even_a_small_demonstration_meets_every_kind_of_trouble() -> None:
    first = {basket.card for basket in baskets()[:25]}
    assert {cards.SLOW_NETWORK, cards.DECLINED, cards.MALFORMED} <= first


def test_a_total_is_the_sum_of_its_lines() -> None:
    basket = next(b for b in baskets() if len(b.lines) > 2)
    expected = Decimal(0)
    for line in basket.lines:
        expected += line.quantity * line.unit_price
    assert basket.total == expected


def test_a_slow_network_responds_on_the_third_attempt() -> None:
    for attempt in (1, 2):
        with pytest.raises(cards.CardNetworkTimeout):
            cards.authorise(cards.SLOW_NETWORK, attempt=attempt)
    cards.authorise(cards.SLOW_NETWORK, attempt=3)


@pytest.mark.parametrize("card", sorted(cards.NEVER_PAYS))
def test_a_card_that_never_pays_does_not_pay_on_the_last_attempt_either(card: str) -> None:
    with pytest.raises((cards.CardDeclined, cards.MalformedCard)):
        cards.authorise(card, attempt=99)
