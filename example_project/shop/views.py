"""The pages of the shop."""

import dataclasses
import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from django_ojs.extensions.workflows.models import WorkflowStep
from django_ojs.models import Job
from django_ojs.spec import ids
from example_project.shop.catalogue import baskets
from example_project.shop.models import Order
from example_project.shop.services import place_order
from example_project.shop.stock import SoldOut

_PER_PAGE = 25


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A step of the workflow of an order; without its job before it starts and after pruning."""

    type: str
    state: str
    job: Job | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """An order with the steps of its workflow, for a template."""

    order: Order
    steps: tuple[Step, ...]

    @property
    def started(self) -> list[Step]:
        """The steps that have started."""
        return [step for step in self.steps if step.state not in ("waiting", "skipped")]


@require_GET
def orders(request: HttpRequest) -> HttpResponse:
    """List the orders, newest first."""
    page = Paginator(_orders(), _PER_PAGE).get_page(request.GET.get("page"))
    return render(request, "shop/orders.html", {"page": page, "rows": _rows(page.object_list)})


@require_GET
def order(request: HttpRequest, reference: str) -> HttpResponse:
    """Show one order: lines, payments, documents, steps and what went wrong in them."""
    found = get_object_or_404(_orders(), reference=reference)
    (row,) = _rows([found])
    return render(request, "shop/order.html", {"row": row, "order": found})


@require_POST
def place_random(request: HttpRequest) -> HttpResponse:
    """Place some basket of the order book again, as of now."""
    basket = dataclasses.replace(
        random.choice(baskets()),
        reference=f"WEB-{ids.uuid7().hex[-8:].upper()}",
        placed_at=timezone.now(),
    )
    try:
        placed = place_order(basket)
    except SoldOut as error:
        messages.warning(
            request,
            f"{error}: the order of {basket.customer} was rolled back, and its workflow with it.",
        )
        return redirect("shop:orders")
    messages.success(request, f"Order {placed.reference} is placed, its workflow is enqueued.")
    return redirect("shop:order", placed.reference)


def _orders() -> QuerySet[Order]:
    return Order.objects.select_related("receipt", "invoice").prefetch_related("payments", "items")


def _rows(orders: Iterable[Order]) -> list[Row]:
    found = list(orders)
    steps = WorkflowStep.objects.filter(
        workflow_id__in=[order.workflow for order in found], type__isnull=False
    ).order_by("position")
    kept = list(steps.only("workflow_id", "type", "state"))
    jobs = Job.objects.prefetch_related("attempts").in_bulk([step.pk for step in kept])
    of_workflow = defaultdict[UUID | None, list[Step]](list)
    for step in kept:
        job = jobs.get(step.pk)
        state = job.state if job else step.state
        of_workflow[step.workflow_id].append(Step(type=step.type or "", state=state, job=job))
    return [Row(order=order, steps=tuple(of_workflow[order.workflow])) for order in found]
