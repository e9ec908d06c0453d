"""OJS-4xxx: chains, groups and batches (error-catalog §4.4)."""

from django_ojs.spec.errors.base import OJSError
from django_ojs.spec.errors.lifecycle import NotFound


class WorkflowNotFound(NotFound):
    """There is no workflow with this id."""

    canonical, number = "WORKFLOW_NOT_FOUND", "OJS-4000"


class ChainStepFailed(OJSError):
    """A step failed, and the chain ends there."""

    code, number, status = "CHAIN_STEP_FAILED", "OJS-4001", 422


class GroupTimeout(OJSError):
    """The group was not done in its time."""

    code, number, status, retryable = "GROUP_TIMEOUT", "OJS-4002", 504, True


class DependencyFailed(OJSError):
    """A job that this one needs has failed."""

    code, number, status = "DEPENDENCY_FAILED", "OJS-4003", 422


class CyclicDependency(OJSError):
    """The definition of the workflow refers to itself."""

    code, number, status = "CYCLIC_DEPENDENCY", "OJS-4004", 400


class BatchCallbackFailed(OJSError):
    """The callback job of a batch failed; its retry policy decides."""

    code, number, status, retryable = "BATCH_CALLBACK_FAILED", "OJS-4005", 422, True


class WorkflowCancelled(OJSError):
    """The workflow was cancelled."""

    code, number, status = "WORKFLOW_CANCELLED", "OJS-4006", 409
