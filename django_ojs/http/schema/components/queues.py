"""Queues and their configuration (ojs-queue-config §6, §9; http-binding §11)."""

from typing import Any, Final

from django_ojs.http.schema.operation import nullable
from django_ojs.http.schema.values import (
    ANY,
    BOOLEAN,
    COUNT,
    NUMBER,
    OBJECT,
    QUEUE_NAME,
    STRING,
    TIMESTAMP,
    Schema,
    about,
    array,
    enum,
    object_,
    optional,
    ref,
)
from django_ojs.operations.queues import QueueState
from django_ojs.spec.envelope import DEFAULT_LIMITS
from django_ojs.spec.queue_config import STRATEGIES
from django_ojs.spec.states import State
from django_ojs.spec.strict import MAX_INTEGER

_BOUND: Final[Schema] = {
    "type": "integer",
    "minimum": 0,
    "maximum": MAX_INTEGER,
    "description": "0 means unbounded.",
}
_DURATION: Final = ref("Duration")
_SECONDS: Final[Schema] = {
    "anyOf": [{"type": "integer", "minimum": 0, "maximum": MAX_INTEGER}, _DURATION],
    "description": "Seconds, or a duration.",
}
_NAMES: Final = array({"type": "string", "minLength": 1})
_STATE: Final = enum(*QueueState)
_NUMBERS: Final[dict[str, Schema]] = dict.fromkeys([state.value for state in State], COUNT)


def _values(**properties: Schema) -> Schema:
    return object_(nullable(properties), additionalProperties=ANY)


_SUMMARY: Final[dict[str, Schema]] = {
    "name": QUEUE_NAME,
    "status": _STATE,
    "state": _STATE,
    "paused": BOOLEAN,
    "created_at": TIMESTAMP,
}


def _queue(**more: Schema) -> Schema:
    properties = {**_SUMMARY, "paused_at": TIMESTAMP, **more}
    return object_(properties, [*_SUMMARY, *more])


def _paused(moment: str) -> dict[str, Any]:
    properties = {
        "queue": object_({"name": QUEUE_NAME, "paused": BOOLEAN}, ["name", "paused"]),
        "status": _STATE,
        moment: TIMESTAMP,
    }
    return object_(properties, list(properties))


SCHEMAS: Final[dict[str, Schema]] = {
    "Pagination": object_(
        {
            "total": COUNT,
            "limit": COUNT,
            "offset": COUNT,
            "has_more": BOOLEAN,
            "next_cursor": about(STRING, "The `cursor` of the next page, where there is one."),
            "total_capped": about(BOOLEAN, "There are more than `total`, as far as was counted."),
        },
        ["total", "limit", "offset", "has_more"],
    ),
    "QueueConfigRequest": {
        **_values(
            backpressure=_values(
                max_depth=_BOUND,
                max_size_bytes=_BOUND,
                strategy=enum(*STRATEGIES),
                warning_threshold={"type": "number", "minimum": 0, "maximum": 1},
            ),
            max_size=about(_BOUND, "For `backpressure.max_depth`."),
            max_size_bytes=about(_BOUND, "For `backpressure.max_size_bytes`."),
            overflow_policy=enum(*STRATEGIES),
            max_envelope_bytes={**_BOUND, "maximum": DEFAULT_LIMITS.envelope_bytes},
            concurrency=_BOUND,
            rate_limit=_values(limit=_BOUND, period=_DURATION),
            visibility_timeout=_SECONDS,
            default_timeout=_SECONDS,
            default_retry=ref("RetryRequest"),
            retention=_values(completed=_DURATION, discarded=_DURATION, cancelled=_DURATION),
            dead_letter_queue=QUEUE_NAME,
            dead_letter_max_size=_BOUND,
            dead_letter_ttl=_DURATION,
            dead_letter=_values(retention=_values(max_age=_DURATION, max_count=_BOUND)),
            allowed_job_types=_NAMES,
            producers=_NAMES,
        ),
        "propertyNames": {"pattern": "^(?!_)"},
        "description": (
            "Changes go by top-level key; null takes a value away. What is not named here is kept "
            "and given back."
        ),
    },
    "QueueConfigAnswer": object_(
        {"name": STRING, "config": OBJECT},
        ["name", "config"],
        description="What holds for the queue, in `config` and beside it.",
    ),
    "QueueRequest": object_(
        {"name": QUEUE_NAME, "config": optional(ref("QueueConfigRequest"))},
        ["name"],
        additionalProperties=ANY,
    ),
    "QueueAnswer": _queue(config=OBJECT),
    "QueueDetail": _queue(
        config=OBJECT,
        stats=object_(
            {**_NUMBERS, "depth": COUNT, "completed_today": COUNT, "failed_today": COUNT}
        ),
    ),
    "QueuesAnswer": object_(
        {"queues": array(_queue(depth=COUNT)), "pagination": ref("Pagination")},
        ["queues", "pagination"],
    ),
    "QueueStats": object_(
        {
            "queue": object_({"name": QUEUE_NAME, "paused": BOOLEAN, **_NUMBERS}),
            "status": _STATE,
            "stats": object_(
                {
                    "queue": QUEUE_NAME,
                    "depth": COUNT,
                    "max_depth": about({"type": ["integer", "null"]}, "Null: unbounded."),
                    **_NUMBERS,
                    "completed_last_hour": COUNT,
                    "failed_last_hour": COUNT,
                    "avg_duration_ms": about(COUNT, "To about a third; 0 when none completed."),
                    "avg_wait_ms": about(COUNT, "To about a third; 0 when none completed."),
                    "throughput_per_second": NUMBER,
                    "oldest_available_at": TIMESTAMP,
                },
            ),
            "computed_at": TIMESTAMP,
        },
        ["queue", "status", "stats", "computed_at"],
    ),
    "QueuePaused": _paused("paused_at"),
    "QueueResumed": _paused("resumed_at"),
    "QueueDeletion": {
        "oneOf": [
            object_(
                {
                    "strategy": optional(enum("reject", "discard")),
                    "target_queue": {"type": "null"},
                },
                additionalProperties=ANY,
            ),
            object_(
                {"strategy": enum("move"), "target_queue": QUEUE_NAME},
                ["strategy", "target_queue"],
                additionalProperties=ANY,
            ),
        ]
    },
    "QueueDeleted": object_(
        {
            "queue": QUEUE_NAME,
            "strategy": enum("reject", "discard", "move"),
            "target_queue": QUEUE_NAME,
            "jobs_affected": COUNT,
            "jobs_waiting": about(COUNT, "More than one request takes; ask again."),
            "state": enum("deleted", "draining"),
        },
        ["queue", "strategy", "jobs_affected", "jobs_waiting", "state"],
    ),
}
