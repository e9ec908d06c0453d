"""Open Job Spec for Django: background jobs that commit with your rows.

import django_ojs as ojs

@ojs.job("email.send", queue="email")
def send_email(to: str, template: str) -> None: ...

with transaction.atomic():
    order = Order.objects.create(...)
    send_email.enqueue(order.email, "receipt")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from django_ojs.not_installed import NAMES, check_module, missing_names
from django_ojs.spec import errors
from django_ojs.version import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from django_ojs.client import (
        HIGH,
        LOW,
        NORMAL,
        aactivate,
        acancel,
        activate,
        adrain_queue,
        aenqueue,
        aenqueue_after_commit,
        aenqueue_batch,
        aget_job,
        apause_queue,
        aresume_queue,
        aretry,
        cancel,
        drain_queue,
        enqueue,
        enqueue_after_commit,
        enqueue_batch,
        get_job,
        new_id,
        pause_queue,
        request,
        resume_queue,
        retry,
    )
    from django_ojs.context import JobContext, current_context
    from django_ojs.enqueue_options import Request
    from django_ojs.extensions.cron.schedules import cron
    from django_ojs.extensions.limits.rate_limit_policy import RateLimitPolicy
    from django_ojs.extensions.payloads.parameter_kinds import (
        PayloadFile,
        PayloadStream,
        UnverifiedPayloadStream,
    )
    from django_ojs.extensions.payloads.reference import payload_reference
    from django_ojs.extensions.workflows.api import (
        EnqueuedWorkflow,
        WorkflowRequest,
        acancel_workflow,
        aget_workflow,
        batch,
        cancel_workflow,
        chain,
        get_workflow,
        graph,
        group,
        step,
    )
    from django_ojs.extensions.workflows.models import Workflow
    from django_ojs.handlers import Handler, job
    from django_ojs.models import Job
    from django_ojs.operations.enqueue.result import EnqueuedJob, Outcome
    from django_ojs.spec.errors import OJSError
    from django_ojs.spec.failure import DeadLetter, Discard, RateLimitExceeded, Retry
    from django_ojs.spec.retry_policy import RetryPolicy
    from django_ojs.spec.states import State
    from django_ojs.spec.unique_policy import UniquePolicy

# The module of each public name, including those that extensions bring. They are imported when
# first used, because models cannot be imported before Django is set up, and Django imports this
# package to set itself up.
_HOME = {
    "django_ojs.client": """
        HIGH LOW NORMAL request new_id pause_queue drain_queue resume_queue
        enqueue enqueue_after_commit enqueue_batch cancel get_job activate retry
        aenqueue aenqueue_after_commit aenqueue_batch acancel aget_job aactivate aretry
        apause_queue adrain_queue aresume_queue""",
    "django_ojs.context": "JobContext current_context",
    "django_ojs.handlers": "Handler job",
    "django_ojs.models": "Job",
    "django_ojs.operations.enqueue.result": "EnqueuedJob Outcome",
    "django_ojs.enqueue_options": "Request",
    "django_ojs.spec.errors": "OJSError",
    "django_ojs.spec.failure": "DeadLetter Discard RateLimitExceeded Retry",
    "django_ojs.spec.retry_policy": "RetryPolicy",
    "django_ojs.spec.states": "State",
    "django_ojs.spec.unique_policy": "UniquePolicy",
    **NAMES,
}
_MODULES = {name: module for module, names in _HOME.items() for name in names.split()}

__all__ = [
    "HIGH",
    "LOW",
    "NORMAL",
    "DeadLetter",
    "Discard",
    "EnqueuedJob",
    "EnqueuedWorkflow",
    "Handler",
    "Job",
    "JobContext",
    "OJSError",
    "Outcome",
    "PayloadFile",
    "PayloadStream",
    "RateLimitExceeded",
    "RateLimitPolicy",
    "Request",
    "Retry",
    "RetryPolicy",
    "State",
    "UniquePolicy",
    "UnverifiedPayloadStream",
    "Workflow",
    "WorkflowRequest",
    "aactivate",
    "acancel",
    "acancel_workflow",
    "activate",
    "adrain_queue",
    "aenqueue",
    "aenqueue_after_commit",
    "aenqueue_batch",
    "aget_job",
    "aget_workflow",
    "apause_queue",
    "aresume_queue",
    "aretry",
    "batch",
    "cancel",
    "cancel_workflow",
    "chain",
    "cron",
    "current_context",
    "drain_queue",
    "enqueue",
    "enqueue_after_commit",
    "enqueue_batch",
    "errors",
    "get_job",
    "get_workflow",
    "graph",
    "group",
    "job",
    "new_id",
    "pause_queue",
    "payload_reference",
    "request",
    "resume_queue",
    "retry",
    "step",
]


if not TYPE_CHECKING:  # A type checker would otherwise accept every name.

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            from django_ojs.spec.other_queues import no_attribute

            raise no_attribute(name, "ojs", f"module {__name__!r}")
        home = _MODULES[name]
        check_module(home, name)
        value = globals()[name] = getattr(import_module(home), name)
        return value


def __dir__() -> list[str]:
    # `help`, `inspect.getmembers` and the completion of a shell read all that is listed, and would
    # end with the error of the first name whose app is not installed.
    return sorted({*globals(), *__all__} - missing_names())
