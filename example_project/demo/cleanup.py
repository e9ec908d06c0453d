"""Delete the data of an earlier demonstration, and no other data."""

import shutil
from pathlib import Path

from django.conf import settings

from django_ojs.models import Job
from example_project.shop.models import Order, Source

#: The types of the shop's jobs; jobs of other types are not deleted.
JOB_TYPES = ("order.charge", "order.receipt", "order.invoice", "order.label")


def foreign_orders() -> int:
    """Count the orders that the demonstration did not place."""
    return Order.objects.exclude(source=Source.DEMO).count()


def delete_shop_data() -> None:
    """Delete the shop's orders, jobs, e-mails and invoices."""
    Order.objects.all().delete()
    Job.objects.filter(type__in=JOB_TYPES).delete()
    for folder in (Path(settings.RECEIPT_FOLDER), Path(settings.MEDIA_ROOT) / "invoices"):
        shutil.rmtree(folder, ignore_errors=True)
