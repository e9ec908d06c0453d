"""The nightly report: a cron job that the shop's code declares, run now."""

import time
from collections.abc import Callable

from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.cron.operations.schedule import describe
from django_ojs.models import Job
from example_project.shop.jobs import REPORT
from example_project.shop.models import Order, Status

_TIMEOUT_SECONDS = 180.0
_POLL_SECONDS = 0.1


def show(write: Callable[[str], object]) -> list[str]:
    """Run the report while workers run, print it with `write`, and return what is wrong with it.

    A worker has stored its schedule when it started.
    """
    Job.objects.filter(type=REPORT).delete()
    schedule = cron.get(REPORT)
    job = _ended(cron.trigger(REPORT, by="make demo").job())
    write(
        f"the nightly report runs {describe(schedule.expression, schedule.timezone)}; run now it "
        f"is {job.state}: {job.result}"
    )
    wanted = {
        "orders": Order.objects.count(),
        "paid": Order.objects.filter(status=Status.PAID).count(),
    }
    return [] if job.result == wanted else [f"The nightly report should be {wanted}."]


def _ended(job: Job) -> Job:
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while job.finished_at is None and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        job.refresh_from_db()
    return job
