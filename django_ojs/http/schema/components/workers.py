"""What workers say and are told (worker-protocol §3-6)."""

from typing import Final

from django_ojs.http.schema.operation import nullable
from django_ojs.http.schema.values import (
    ANY,
    BOOLEAN,
    COUNT,
    JOB_ID,
    MILLISECONDS,
    OBJECT,
    QUEUE_NAME,
    STRING,
    TIMESTAMP,
    Schema,
    about,
    answer,
    array,
    enum,
    object_,
    optional,
    ref,
)
from django_ojs.http.views.workers import LONGEST_WAIT_MS
from django_ojs.models.worker import Directive
from django_ojs.operations.fetch import MAX_COUNT
from django_ojs.spec.envelope import MAX_TIMEOUT_MS

WORKER_ID: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 255,
    "description": "Printable.",
    "examples": ["worker-1"],
}
_INTEGER: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": MAX_TIMEOUT_MS}
_SHORT: Final[Schema] = {"type": "string", "maxLength": 255, "description": "Printable."}
_DIRECTIVE: Final = enum(*Directive.values)

_CLAIM: Final = nullable(
    {
        "worker_id": about(WORKER_ID, "Must be the one that claimed the job, if it is sent."),
        "attempt": about(_INTEGER, "Must be the job's, if it is sent."),
    }
)
_REQUEUE: Final = {"requeue": about(BOOLEAN, "Give the job back at once; no attempt is spent.")}
_FAILURE: Final = {"error": ref("Failure"), **nullable(_REQUEUE)}
_IDENTITY: Final = {"id": JOB_ID, "job_id": JOB_ID, "state": STRING}


def _fail(more: dict[str, Schema], required: list[str]) -> Schema:
    # Without an error a job can only be given back.
    return {
        "anyOf": [
            object_({**_CLAIM, **_FAILURE, **more}, ["error", *required]),
            object_(
                {
                    **_CLAIM,
                    "error": optional(ref("Failure")),
                    "requeue": {"const": True, "type": "boolean"},
                    **more,
                },
                ["requeue", *required],
            ),
        ]
    }


SCHEMAS: Final[dict[str, Schema]] = {
    "FetchRequest": object_(
        {
            "queues": array(QUEUE_NAME, minItems=1, description="The first one comes first."),
            **nullable(
                {
                    "count": {"type": "integer", "minimum": 1, "maximum": MAX_COUNT},
                    "worker_id": WORKER_ID,
                    "visibility_timeout_ms": MILLISECONDS,
                    "wait_ms": {
                        "type": "integer",
                        "minimum": 0,
                        "maximum": LONGEST_WAIT_MS,
                        "description": "How long to wait for the first job.",
                    },
                }
            ),
        },
        ["queues"],
    ),
    "FetchAnswer": answer(jobs=array(ref("Job"))),
    "AckRequest": object_({**_CLAIM, "job_id": JOB_ID, "result": ANY}, ["job_id"]),
    "AckJobRequest": object_({**_CLAIM, "result": ANY}),
    "AckAnswer": object_(
        {
            "acknowledged": {"type": "boolean", "const": True},
            **_IDENTITY,
            "completed_at": TIMESTAMP,
            "job": ref("Job"),
        },
        ["acknowledged", *_IDENTITY, "job"],
    ),
    "Failure": {
        "type": "object",
        "description": "`type`, or `code` in its place, and `message`.",
        "properties": {
            "message": STRING,
            **nullable(
                {
                    "type": STRING,
                    "code": STRING,
                    "retryable": BOOLEAN,
                    "details": OBJECT,
                }
            ),
            "backtrace": about({}, "An array of frames, or text; what is none is left out."),
        },
        "required": ["message"],
        "anyOf": [
            {"properties": {"type": {"type": "string", "minLength": 1}}, "required": ["type"]},
            {"properties": {"code": {"type": "string", "minLength": 1}}, "required": ["code"]},
        ],
    },
    "FailRequest": _fail({"job_id": JOB_ID}, ["job_id"]),
    "FailJobRequest": _fail({}, []),
    "FailAnswer": object_(
        {
            **_IDENTITY,
            "attempt": COUNT,
            "max_attempts": COUNT,
            "next_attempt_at": TIMESTAMP,
            "discarded_at": TIMESTAMP,
            "retry_delay_ms": COUNT,
            "job": ref("Job"),
        },
        [*_IDENTITY, "attempt", "max_attempts", "job"],
    ),
    "BeatRequest": object_(
        {
            "worker_id": WORKER_ID,
            **nullable(
                {
                    "state": _DIRECTIVE,
                    "active_jobs": {
                        "description": "The ids of the jobs in hand, or their number.",
                        "anyOf": [array(JOB_ID), _INTEGER],
                    },
                    "active_job_ids": array(JOB_ID),
                    "visibility_timeout_ms": MILLISECONDS,
                    "hostname": _SHORT,
                    "pid": _INTEGER,
                    "queues": array(_SHORT),
                    "labels": array(_SHORT),
                    "concurrency": _INTEGER,
                    "version": {**_SHORT, "maxLength": 64},
                    "started_at": {"type": "string", "format": "date-time"},
                }
            ),
        },
        ["worker_id"],
    ),
    "BeatAnswer": answer(
        state=_DIRECTIVE,
        jobs_extended=array(JOB_ID),
        jobs_lost=array(JOB_ID),
        server_time=TIMESTAMP,
    ),
}
