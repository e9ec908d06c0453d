"""E-mails and invoices replace themselves when they are written again."""

from __future__ import annotations

from email import message_from_bytes, policy
from pathlib import Path

import pytest
from django.conf import LazySettings

from example_project.shop import invoices, mail
from example_project.shop.models import Invoice, Order, Receipt
from example_project.shop.services import place_order
from tests.example_project.factories import BasketFactory, write_into

pytestmark = [pytest.mark.django_db, pytest.mark.once]


@pytest.fixture
def order(settings: LazySettings, tmp_path: Path) -> Order:
    write_into(settings, tmp_path)
    return place_order(BasketFactory(reference="T-7"))


def test_an_invoice_is_a_whole_pdf_named_after_its_order(order: Order, tmp_path: Path) -> None:
    name = invoices.store(order)

    assert name == "invoices/T-7.pdf"
    content = (tmp_path / "media" / name).read_bytes()
    assert content.startswith(b"%PDF-")
    assert content.rstrip().endswith(b"%%EOF")


def test_only_letters_that_pdf_does_not_know_need_a_font_in_the_invoice(
    order: Order, tmp_path: Path
) -> None:
    sizes = []
    for customer in ("Isa Bourgondië", "Zażółć Ωμέγα Đặng"):
        order.customer = customer
        sizes.append(len((tmp_path / "media" / invoices.store(order)).read_bytes()))
    assert sizes[0] < 5_000 < sizes[1]


def test_an_invoice_drawn_again_leaves_one_file_and_counts(order: Order, tmp_path: Path) -> None:
    invoices.store(order)
    invoices.store(order)

    assert [path.name for path in (tmp_path / "media" / "invoices").iterdir()] == ["T-7.pdf"]
    assert Invoice.objects.get(order=order).written == 2


def test_a_receipt_names_the_customer_the_lines_and_the_total(order: Order, tmp_path: Path) -> None:
    mail.send_receipt(order, ["CK1", "CK2"])

    raw = (tmp_path / "mail" / "T-7.eml").read_bytes()
    message = message_from_bytes(raw, policy=policy.default)
    body = message.get_content()
    assert message["To"] == "Zażółć Ωμέγα Đặng <zazolc@example.org>"
    assert "3 x Olive wood spoon  19.20 EUR" in body
    assert "Total: 28.95 EUR" in body
    assert "Your parcels: CK1, CK2." in body


def test_a_customer_with_a_comma_in_the_name_is_one_person(order: Order, tmp_path: Path) -> None:
    order.customer = "Isa Bourgondië, van"
    mail.send_receipt(order, ["CK1", "CK2"])

    raw = (tmp_path / "mail" / "T-7.eml").read_bytes()
    (address,) = message_from_bytes(raw, policy=policy.default)["To"].addresses
    assert address.display_name == "Isa Bourgondië, van"
    assert address.addr_spec == "zazolc@example.org"


def test_a_receipt_sent_again_leaves_one_file_and_counts(order: Order, tmp_path: Path) -> None:
    mail.send_receipt(order, ["CK1", "CK2"])
    mail.send_receipt(order, ["CK1", "CK2"])

    assert [path.name for path in (tmp_path / "mail").iterdir()] == ["T-7.eml"]
    assert Receipt.objects.get(order=order).written == 2
