"""Dead letters and progress (ojs-dead-letter, ojs-progress)."""

from typing import Any, Final

from django_ojs.http.schema.operation import nullable
from django_ojs.http.schema.values import (
    ANY,
    BOOLEAN,
    COUNT,
    JOB_ID,
    OBJECT,
    QUEUE_NAME,
    STRING,
    TIMESTAMP,
    Schema,
    about,
    answer,
    array,
    object_,
    optional,
    ref,
)
from django_ojs.spec.envelope import MAX_PRIORITY, MAX_TIMEOUT_MS, MIN_PRIORITY

_VALUES: Final[Schema] = {"type": "object", "additionalProperties": ANY}
_NUMBERS: Final[Schema] = {"type": "object", "additionalProperties": COUNT}


def _null_or(**schema: Any) -> Schema:
    return optional(schema)


SCHEMAS: Final[dict[str, Schema]] = {
    "DeadLettersAnswer": answer(jobs=array(ref("Job")), pagination=ref("Pagination")),
    "DeadLetterStats": object_(
        {
            "total": COUNT,
            "total_capped": about(BOOLEAN, "There are more, and older ones, than were counted."),
            "by_queue": _NUMBERS,
            "by_error_type": _NUMBERS,
            "oldest_at": TIMESTAMP,
            "newest_at": TIMESTAMP,
            "retention": OBJECT,
        },
        ["total", "by_queue", "by_error_type", "retention"],
    ),
    "DeadLetterRetryRequest": object_(
        {
            "override": optional(
                object_(
                    nullable(
                        {
                            "args": array(ANY),
                            "meta": about(_VALUES, "Merged into what the job has."),
                            "priority": {
                                "type": "integer",
                                "minimum": MIN_PRIORITY,
                                "maximum": MAX_PRIORITY,
                            },
                            "queue": QUEUE_NAME,
                            "retry": ref("RetryRequest"),
                        }
                    ),
                    additionalProperties=False,
                )
            )
        },
        additionalProperties=ANY,
    ),
    "DeadLetterDeleted": answer(deleted=BOOLEAN, job_id=JOB_ID),
    "ProgressRequest": object_(
        {
            "progress": _null_or(
                type="number", description="A share from 0 to 1; what is outside is the nearer."
            ),
            "data": optional(_VALUES),
            "checkpoint": optional(about(_VALUES, "What another run of the job begins with.")),
            "worker_id": optional(STRING),
            "attempt": _null_or(type="integer", minimum=0, maximum=MAX_TIMEOUT_MS),
        },
        additionalProperties=ANY,
        anyOf=[
            {"required": ["progress"], "properties": {"progress": {"type": "number"}}},
            {"required": ["data"], "properties": {"data": {"type": "object"}}},
        ],
    ),
    "ProgressAnswer": answer(
        job_id=JOB_ID,
        state=STRING,
        progress={"type": ["number", "null"], "minimum": 0, "maximum": 1},
        data={"type": ["object", "null"]},
        updated_at={"type": ["string", "null"], "format": "date-time"},
    ),
}
