"""PUSH, INFO, CANCEL, ACTIVATE (http-binding §9)."""

from collections.abc import Mapping
from typing import Final

from django_ojs.http.access import Scope
from django_ojs.http.schema.operation import Answer, Operation
from django_ojs.http.schema.values import ref

_CANCELLED: Final = Answer(text="The job, and its `previous_state`.", schema=ref("JobAnswer"))
_FULL: Final = (
    "A full queue refuses with 429, waits, or drops its oldest jobs, as its strategy has it. Above "
    "its warning threshold the answer says how full it is; of several queues, the fullest."
)
_PRESSURE: Final = ("X-OJS-Queue-Depth", "X-OJS-Queue-Bound", "X-OJS-Queue-Pressure")


def _cancel(id: str, summary: str) -> Operation:
    return Operation(
        id=id,
        tag="Jobs",
        summary=summary,
        text="A job that has ended is a conflict; a running one is told to stop.",
        scope=Scope.OPERATOR,
        answers={200: _CANCELLED},
        errors=[409],
    )


ROUTES: Final[Mapping[str, Mapping[str, Operation]]] = {
    "ojs-jobs": {
        "POST": Operation(
            id="pushJob",
            tag="Jobs",
            summary="PUSH: store a job",
            scope=Scope.PRODUCER,
            body=ref("JobRequest"),
            text=_FULL,
            headers=("OJS-Block-Timeout",),
            answers={
                200: Answer(
                    text="Nothing was stored: the job was there, or was dropped.",
                    schema=ref("PushAnswer"),
                    headers=_PRESSURE,
                ),
                201: Answer(
                    text="Stored.", schema=ref("PushAnswer"), headers=("Location", *_PRESSURE)
                ),
            },
            errors=[409, 429],
        )
    },
    "ojs-jobs-batch": {
        "POST": Operation(
            id="pushJobs",
            tag="Jobs",
            summary="PUSH of many jobs, all or none",
            text=f"An error about one job carries its `index` in `details`. {_FULL}",
            scope=Scope.PRODUCER,
            body=ref("BatchRequest"),
            headers=("OJS-Block-Timeout",),
            answers={
                201: Answer(
                    text="Stored, in the order of the request.",
                    schema=ref("BatchAnswer"),
                    headers=_PRESSURE,
                )
            },
            errors=[409, 429],
        )
    },
    "ojs-job": {
        "GET": Operation(
            id="getJob",
            tag="Jobs",
            summary="INFO: a job as it is",
            scope=Scope.READ,
            answers={200: Answer(text="The job.", schema=ref("JobAnswer"))},
        ),
        "DELETE": _cancel("cancelJob", "CANCEL: end a job"),
    },
    "ojs-job-cancel": {"POST": _cancel("cancelJobByPost", "CANCEL under another name")},
    "ojs-job-activate": {
        "POST": Operation(
            id="activateJob",
            tag="Jobs",
            summary="ACTIVATE: make a pending job available",
            text="It enters its queue then, which may be full.",
            scope=Scope.PRODUCER,
            answers={200: _CANCELLED},
            errors=[409, 429],
        )
    },
}
