"""E-mails to customers, written into a folder."""

import os
import tempfile
from collections.abc import Sequence
from email.headerregistry import Address
from pathlib import Path

from django.conf import settings
from django.core.mail import EmailMessage
from django.core.mail.backends.base import BaseEmailBackend
from django.db.models import F
from django.template.loader import render_to_string

from example_project.shop.models import Order, Receipt, StockAlert

#: What the names of their messages begin with, where a receipt has the reference of its order.
STOCK_ALERT = "stock-alert-"


class ReceiptFileBackend(BaseEmailBackend):
    """Write each message to a file named after its Message-ID.

    Django's own file backend names files after the clock, so that a message sent again would be a
    second file. A Message-ID identifies a repeated message, here as on mail servers.
    """

    def send_messages(self, email_messages: Sequence[EmailMessage]) -> int:
        """Write the messages; return how many."""
        folder = Path(settings.RECEIPT_FOLDER)
        folder.mkdir(parents=True, exist_ok=True)
        for message in email_messages:
            content = message.message()
            name = str(content["Message-ID"]).strip("<>").partition("@")[0]
            _write(folder / f"{name}.eml", content.as_bytes())
        return len(email_messages)


def send_receipt(order: Order, parcels: Sequence[str]) -> None:
    """Send the receipt of an order and remember that it went out."""
    message_id = f"<{order.reference}@corner-kitchen.example.com>"
    context = {"order": order, "items": order.items.all(), "parcels": parcels}
    message = EmailMessage(
        subject=f"Thank you for your order {order.reference}",
        body=render_to_string("shop/receipt.txt", context),
        # Address quotes what needs it: "Bourgondië, van" is one person.
        to=[str(Address(display_name=order.customer, addr_spec=order.email))],
        headers={"Message-ID": message_id},
    )
    message.send()
    Receipt.objects.update_or_create(
        order=order,
        defaults={"message_id": message_id, "written": F("written") + 1},
        create_defaults={"message_id": message_id},
    )


def send_stock_alert(alert: StockAlert) -> None:
    """Write to a customer that a product has arrived."""
    EmailMessage(
        subject=f"{alert.product} is in stock again",
        body=render_to_string("shop/stock_alert.txt", {"alert": alert}),
        to=[alert.email],
        headers={"Message-ID": f"<{STOCK_ALERT}{alert.pk}@corner-kitchen.example.com>"},
    ).send()


def _write(path: Path, content: bytes) -> None:
    # Under its name a message is either whole or absent, also when the worker dies while writing.
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as handle:
        handle.write(content)
    os.replace(handle.name, path)
