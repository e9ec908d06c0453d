"""FETCH, ACK, FAIL and BEAT (http-binding §10)."""

from collections.abc import Mapping
from typing import Any, Final

from django_ojs.http.access import Scope
from django_ojs.http.schema.operation import Answer, Operation
from django_ojs.http.schema.values import ref


def _operation(id: str, summary: str, request: str, text: str, name: str, **more: Any) -> Operation:
    return Operation(
        id=id,
        tag="Workers",
        summary=summary,
        scope=Scope.WORKER,
        body=ref(request),
        answers={200: Answer(text=text, schema=ref(name))},
        **more,
    )


_ACK: Final = ("The job is completed.", "AckAnswer")
_FAIL: Final = ("The failure is recorded, or the job given back.", "FailAnswer")
_BEAT: Final = ("What the worker shall do.", "BeatAnswer")

ROUTES: Final[Mapping[str, Mapping[str, Operation]]] = {
    "ojs-fetch": {
        "POST": _operation(
            "fetchJobs", "FETCH: claim jobs", "FetchRequest", "The jobs, or none.", "FetchAnswer"
        )
    },
    "ojs-ack": {
        "POST": _operation("ackJob", "ACK: complete a job", "AckRequest", *_ACK, errors=[404, 409])
    },
    "ojs-nack": {
        "POST": _operation(
            "nackJob", "FAIL: a run failed", "FailRequest", *_FAIL, errors=[404, 409]
        )
    },
    "ojs-job-ack": {
        "POST": _operation(
            "ackJobByPath",
            "ACK of the job of the path",
            "AckJobRequest",
            *_ACK,
            needs_body=False,
            errors=[409],
        )
    },
    "ojs-job-nack": {
        "POST": _operation(
            "nackJobByPath", "FAIL of the job of the path", "FailJobRequest", *_FAIL, errors=[409]
        )
    },
    "ojs-heartbeat": {
        "POST": _operation("heartbeat", "BEAT: a sign of life", "BeatRequest", *_BEAT)
    },
    "ojs-beat": {"POST": _operation("beat", "BEAT under another name", "BeatRequest", *_BEAT)},
}
