"""Delete the data of an earlier demonstration, and no other data."""

import shutil
from pathlib import Path

from django.conf import settings

from django_ojs.extensions.workflows.models import EndedWorkflowJob, Workflow, WorkflowStep
from django_ojs.models import Job
from example_project.shop import partner
from example_project.shop.jobs import STOCK_IMPORT, commission
from example_project.shop.models import Commission, Order, Source, Stock, StockAlert

#: The type of the jobs of a task is the path of its function.
STOCK_ALERT_JOB = "example_project.shop.tasks.send_stock_alert"
#: The types of the jobs of an order; of other types, only the import, the alerts and the
#: commission are deleted.
JOB_TYPES = (
    "order.reserve",
    "order.charge",
    "order.label",
    "order.handover",
    "order.receipt",
    "order.invoice",
    "order.cancel",
)
#: Workflows that one statement deletes: SQLite limits its parameters.
_AT_ONCE = 500


def foreign_orders() -> int:
    """Count the orders that the demonstration did not place."""
    return Order.objects.exclude(source=Source.DEMO).count()


def delete_shop_data() -> None:
    """Delete the shop's orders, their workflows and jobs, the stock, e-mails and invoices."""
    of_orders = list(Workflow.objects.filter(name="order").values_list("pk", flat=True))
    others = [STOCK_IMPORT, STOCK_ALERT_JOB, commission.type]
    Job.objects.filter(type__in=[*JOB_TYPES, *others]).delete()
    for number in range(0, len(of_orders), _AT_ONCE):
        keys = of_orders[number : number + _AT_ONCE]
        WorkflowStep.objects.filter(workflow_id__in=keys).delete()
        EndedWorkflowJob.objects.filter(workflow_id__in=keys).delete()
        Workflow.objects.filter(pk__in=keys).delete()
    Order.objects.all().delete()
    Stock.objects.all().delete()
    StockAlert.objects.all().delete()
    Commission.objects.all().delete()
    partner.books().unlink(missing_ok=True)
    for folder in (Path(settings.RECEIPT_FOLDER), Path(settings.MEDIA_ROOT) / "invoices"):
        shutil.rmtree(folder, ignore_errors=True)
