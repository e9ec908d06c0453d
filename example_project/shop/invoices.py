"""Invoices: one page of PDF an order, stored under the media root."""

from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db.models import F

from example_project.shop.models import Invoice, Order


def store(order: Order) -> str:
    """Draw the invoice of an order and store it; return its name under the media root.

    The name is the order's reference, and the storage is one that overwrites (see `STORAGES` in the
    settings): to draw an invoice twice leaves one file.
    """
    # Imported here: the PDF library takes as long to import as Django; most processes draw none.
    from example_project.shop.invoice_page import render

    content = ContentFile(render(order, list(order.items.all())))
    stored = default_storage.save(f"invoices/{order.reference}.pdf", content)
    Invoice.objects.update_or_create(
        order=order,
        defaults={"file": stored, "written": F("written") + 1},
        create_defaults={"file": stored},
    )
    return stored
