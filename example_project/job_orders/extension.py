"""Which order a job is about: an extension of django_ojs, in one file.

A job may have the attribute `order`: `{"type": "order.invoice", "args": ["A-7"], "order": "A-7"}`.
The first argument of the shop's own jobs is this reference.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from django.db.models import Q
from django.db.models.fields.json import KT
from prometheus_client.core import GaugeMetricFamily
from rest_framework.request import Request

from django_ojs.admin.panels import AdminColumn
from django_ojs.command_line.console import Console
from django_ojs.command_line.subcommand import Subcommand
from django_ojs.extension import Attribute, Batch, Extension, Hooks, Qualifier
from django_ojs.finding import Finding
from django_ojs.http.routing import route
from django_ojs.http.views.base import OJSView
from django_ojs.models import Job
from django_ojs.operations.jobs import listing
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.spec.envelope import distinct
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.scopes import Scope
from example_project.shop.models import Order


def check(value: Any, name: str) -> None:
    if not isinstance(value, str) or not 1 <= len(value) <= 32:
        raise InvalidRequest.of(name, "must be the reference of an order")


def say_order(batch: Batch, go_on: Callable[[], Any]) -> Any:
    """Give the jobs of the shop their attribute, before they are validated and stored."""
    if any(str(job.type).startswith("order.") for job in distinct(batch.jobs)):
        batch.jobs = list(batch.jobs)
        for job in batch.jobs:
            if str(job.type).startswith("order.") and job.args:
                job.extra = {"order": job.args[0], **job.extra}
    return go_on()


def jobs_of(reference: str, within: frozenset[str] | None = None) -> Sequence[Job]:
    """Return the newest jobs about an order, in these queues or in all."""
    return listing.list_jobs(JobFilter(by_extensions=(("order", reference),), within=within)).rows


def orders_of(jobs: Sequence[Job]) -> Mapping[Any, str]:
    """Return the orders that jobs are about: one query, for a page of jobs."""
    rows = Job.objects.filter(pk__in=[job.pk for job in jobs], options__extra__has_key="order")
    return dict(rows.values_list("pk", KT("options__extra__order")))


class JobsOfOrder(OJSView):
    """`GET /ojs/v1/orders/<reference>/jobs`: the jobs that are about an order."""

    needs = {"GET": Scope.READ}

    def get(self, request: Request, reference: str) -> dict[str, Any]:
        found = jobs_of(reference, self.access.queues)
        return {"jobs": [{"id": str(e.pk), "type": e.type, "state": e.state} for e in found]}


def show(console: Console, options: Mapping[str, Any]) -> int:
    for job in jobs_of(options["reference"]):
        console.line(f"{job.pk}  {job.type}  {job.state}")
    return 0


class OrdersExtension(Extension):
    name = "orders"
    number = 40
    interface = 1
    attributes = (Attribute(name="order", check=check),)
    qualifiers = (
        Qualifier(
            name="order", example="order:A-1001", condition=lambda it: Q(options__extra__order=it)
        ),
    )

    def hooks(self) -> Hooks:
        return Hooks(around_push=say_order)

    def columns(self) -> Sequence[AdminColumn]:
        return (AdminColumn(model=Job, title="Order", cells=orders_of),)

    def routes(self) -> Sequence[Any]:
        return (route("v1/orders/<str:reference>/jobs", JobsOfOrder, "shop-jobs-of-order"),)

    def findings(self) -> Sequence[Finding]:
        number = waiting().count()
        why = "Nothing more is done for them, and the customers wait."
        cure = "`manage.py ojs order REFERENCE` has the jobs; retry those that are discarded."
        text = f"Orders with dead letters: {number}."
        return [Finding(kind="orders_dead", text=text, why=why, cure=cure)][:number]

    def subcommands(self) -> Sequence[Subcommand]:
        return (
            Subcommand(
                name="order",
                help="show the jobs that are about an order",
                description="Show the newest jobs that are about an order.",
                examples="  manage.py ojs order A-1001",
                add_arguments=lambda parser: parser.add_argument("reference"),
                run=show,
            ),
        )

    def metrics(self, within: Collection[str] | None) -> Iterator[Any]:
        if within is None:
            yield GaugeMetricFamily("shop_orders_waiting", "With dead letters.", waiting().count())


def waiting() -> Any:
    """Return the orders with dead letters."""
    dead = Job.objects.filter(dead_letter=True, options__extra__has_key="order")
    return Order.objects.filter(reference__in=dead.values_list(KT("options__extra__order")))
