"""The job: as a client sends it, and as it is answered (ojs-core §5, http-binding §9)."""

from datetime import timedelta
from typing import Final

from django_ojs.http.schema.operation import nullable
from django_ojs.http.schema.values import (
    ANY,
    BOOLEAN,
    COUNT,
    INTEGER,
    JOB_ID,
    JOB_TYPE,
    NUMBER,
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
from django_ojs.spec.envelope import MAX_PRIORITY, MAX_TIMEOUT_MS, MIN_PRIORITY, SPECVERSIONS
from django_ojs.spec.retry import MAX_ATTEMPTS_LIMIT
from django_ojs.spec.states import State
from django_ojs.spec.times import MAX_DURATION

_DURATION: Final = ref("Duration")
#: Without a NUL, which PostgreSQL cannot store.
_TEXT: Final[Schema] = {"type": "string", "pattern": r"^[^\x00]*$"}
_VALUES: Final[Schema] = {"type": "object", "additionalProperties": ANY}
#: Of at most 24 days, which is what a timeout may be.
_SHORT_DURATION: Final[Schema] = {
    "type": "string",
    "pattern": (
        r"^(?:P(?!$)(?:[0-9]D)?(?:T(?!$)(?:[0-9]{1,2}H)?(?:[0-9]{1,4}M)?"
        r"(?:[0-9]{1,5}(?:[.,][0-9]{1,3})?S)?)?|[0-9]{1,5}(?:ms|s)|[0-9]{1,4}m|[0-9]{1,2}h|[0-9]d)$"
    ),
}
_TIMEOUT: Final[Schema] = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": MAX_TIMEOUT_MS // 1000},
        _SHORT_DURATION,
    ],
    "description": "Seconds, or a duration. 0 asks for the default.",
}
_TIMEOUT_MS: Final[Schema] = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": MAX_TIMEOUT_MS},
        _SHORT_DURATION,
    ],
    "description": "Milliseconds, or a duration. 0 asks for the default.",
}
_STATES: Final = [state.value for state in State]
#: Members of the first object in `args`, or positions.
_PLACES: Final = array(
    {"anyOf": [_TEXT, {"type": "integer", "minimum": 0, "maximum": 9_999_999}]}, uniqueItems=True
)
_ERROR_NAMES: Final = array({"type": "string", "minLength": 1})

_OPTIONS: Final[dict[str, Schema]] = nullable(
    {
        "queue": QUEUE_NAME,
        "priority": {"type": "integer", "minimum": MIN_PRIORITY, "maximum": MAX_PRIORITY},
        "timeout": _TIMEOUT,
        "timeout_ms": _TIMEOUT_MS,
        "visibility_timeout": _TIMEOUT,
        "visibility_timeout_ms": _TIMEOUT_MS,
        "scheduled_at": ref("When"),
        "delay_until": ref("When"),
        "expires_at": ref("When"),
        "retry": ref("RetryRequest"),
        "retry_policy": ref("RetryRequest"),
        "unique": ref("UniqueRequest"),
        "schema": {
            "type": "string",
            "maxLength": 2048,
            "pattern": r"^[A-Za-z][A-Za-z0-9+.\-]*:[!-~]+$",
            "description": "A URI.",
        },
        "tags": array(_TEXT),
        "meta": _VALUES,
        "metadata": about(_VALUES, "Merged into `meta`."),
        "pending": about(BOOLEAN, "Wait until activated."),
        "rate_limit": _VALUES,
    }
)

_TIMES: Final = [
    "created_at",
    "enqueued_at",
    "activated_at",
    "started_at",
    "completed_at",
    "cancelled_at",
    "discarded_at",
    "next_attempt_at",
]

_JOB: Final[dict[str, Schema]] = {
    "specversion": STRING,
    "id": JOB_ID,
    "type": JOB_TYPE,
    "queue": QUEUE_NAME,
    "args": array({}),
    "meta": OBJECT,
    "state": enum(*_STATES),
    "attempt": about(COUNT, "How often it was claimed."),
    "max_attempts": COUNT,
    "priority": INTEGER,
}

SCHEMAS: Final[dict[str, Schema]] = {
    "JobRequest": object_(
        {
            "specversion": optional(enum(*sorted(SPECVERSIONS))),
            "id": optional(JOB_ID),
            "type": JOB_TYPE,
            "args": array(ANY),
            "options": optional(object_(_OPTIONS, additionalProperties=ANY)),
            **_OPTIONS,
        },
        ["type", "args"],
        additionalProperties=ANY,
        description=(
            "Options may stand at the top level or in `options`, which wins. What is not named "
            "here is stored and given back; what the server sets is ignored."
        ),
    ),
    "RetryRequest": {
        "description": "A policy, or the number of attempts alone.",
        "anyOf": [
            {"type": "integer", "minimum": 0, "maximum": MAX_ATTEMPTS_LIMIT},
            object_(
                nullable(
                    {
                        "max_attempts": {
                            "type": "integer",
                            "minimum": 0,
                            "maximum": MAX_ATTEMPTS_LIMIT,
                        },
                        "initial_interval": _DURATION,
                        "max_interval": _DURATION,
                        "initial_interval_ms": about(NUMBER, "For `initial_interval`."),
                        "max_interval_ms": about(NUMBER, "For `max_interval`."),
                        "backoff_coefficient": {"type": "number", "minimum": 1},
                        "backoff_strategy": enum(
                            "exponential", "linear", "constant", "polynomial", "none"
                        ),
                        "jitter": BOOLEAN,
                        "non_retryable_errors": _ERROR_NAMES,
                        "on_exhaustion": enum("dead_letter", "discard"),
                    }
                ),
                additionalProperties=ANY,
            ),
        ],
    },
    "Retry": object_({"max_attempts": COUNT}),
    "UniqueRequest": object_(
        nullable(
            {
                "keys": array(enum("type", "queue", "args", "meta"), uniqueItems=True),
                "key": _PLACES,
                "args_keys": _PLACES,
                "meta_keys": array(_TEXT, uniqueItems=True),
                "period": _DURATION,
                "period_ms": {
                    "type": "number",
                    "minimum": 1,
                    "maximum": MAX_DURATION / timedelta(milliseconds=1),
                },
                "states": array(enum(*_STATES), uniqueItems=True),
                "on_conflict": enum(
                    "reject", "replace", "replace_except_schedule", "ignore", "use_existing"
                ),
            }
        ),
        additionalProperties=False,
        description="Which jobs are the same one, and what becomes of the second.",
    ),
    "Job": object_(
        {
            **_JOB,
            **dict.fromkeys(_TIMES, TIMESTAMP),
            "scheduled_at": about(STRING, "As it was sent, where that was a moment."),
            "expires_at": about(STRING, "As it was sent, where that was a moment."),
            "retry": ref("Retry"),
            "unique": OBJECT,
            "rate_limit": OBJECT,
            "schema": STRING,
            "tags": array(STRING),
            "timeout": COUNT,
            "timeout_ms": COUNT,
            "visibility_timeout_ms": COUNT,
            "retry_delay_ms": COUNT,
            "result": {},
            "error": ref("JobError"),
            "errors": array(ref("JobError"), description="The history, oldest first."),
            "progress": {},
            "previous_state": STRING,
        },
        [*_JOB, "created_at"],
        description="What is absent is left out; what a client sent beside it is here too.",
    ),
    "JobError": object_(
        {
            "type": STRING,
            "message": STRING,
            "code": STRING,
            "retryable": BOOLEAN,
            "details": OBJECT,
            "backtrace": array(STRING),
            "attempt": COUNT,
            "retry_delay_ms": COUNT,
        }
    ),
    "JobAnswer": answer(job=ref("Job")),
    "PushAnswer": object_(
        {
            "job": optional(ref("Job")),
            "deduplicated": about(BOOLEAN, "The job was there already."),
            "dropped": about(BOOLEAN, "An enqueue middleware dropped the job."),
        },
        ["job"],
    ),
    "BatchRequest": object_(
        {"jobs": array(ref("JobRequest"), minItems=1)},
        ["jobs"],
        description="All are stored, or none.",
    ),
    "BatchAnswer": answer(jobs=array(optional(ref("Job"))), count=COUNT),
}
