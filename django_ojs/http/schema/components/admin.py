"""What operators send and are answered (ojs-admin-api)."""

from typing import Any, Final

from django_ojs.http.schema.values import (
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
from django_ojs.operations.jobs.bulk import LIMIT
from django_ojs.operations.maintenance.mode import MAX_REASON
from django_ojs.spec.envelope import MAX_PRIORITY, MIN_PRIORITY
from django_ojs.spec.states import TERMINAL, State

STATE: Final = enum(*(state.value for state in State))
PRIORITY: Final[Schema] = {
    "type": "integer",
    "minimum": MIN_PRIORITY,
    "maximum": MAX_PRIORITY,
}
TYPE_OR_PREFIX: Final[Schema] = {
    "description": "A type, or the beginning of some followed by `*`.",
    "anyOf": [JOB_TYPE, {"type": "string", "pattern": r"^[a-z0-9_.\-]{1,100}\*$"}],
}
SHORT: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 255}

_CONFIRM: Final[Schema] = {"const": True, "description": "Literally true."}
_FILTER: Final[dict[str, Schema]] = {
    "queue": QUEUE_NAME,
    "type": TYPE_OR_PREFIX,
    "since": TIMESTAMP,
    "until": TIMESTAMP,
    "priority": PRIORITY,
    "error_type": about(SHORT, "The type of the latest error."),
}
_ANY_STATE: Final[Schema] = {"anyOf": [STATE, array(STATE, minItems=1)]}
_PAGINATION: Final = ref("AdminPagination")
_RATES: Final[dict[str, Schema]] = {
    "throughput": answer(processed_per_minute=NUMBER, failed_per_minute=NUMBER),
    "latency_ms": object_({"p50": NUMBER, "p95": NUMBER, "p99": NUMBER}),
}
_QUEUE: Final[dict[str, Schema]] = {
    "name": STRING,
    "state": enum("active", "paused", "draining"),
    "counts": ref("AdminCounts"),
    "depth": COUNT,
    "paused": BOOLEAN,
    "paused_at": TIMESTAMP,
    "created_at": TIMESTAMP,
    **_RATES,
}
_QUEUE_ALWAYS: Final = ["name", "state", "counts", "paused", "created_at", "throughput"]
_WORKER: Final[dict[str, Schema]] = {
    "id": STRING,
    "hostname": STRING,
    "state": enum("running", "quiet", "terminate", "stale"),
    "directive": enum("running", "quiet", "terminate"),
    "queues": array(STRING),
    "concurrency": COUNT,
    "active_jobs": COUNT,
    "started_at": TIMESTAMP,
    "last_heartbeat_at": TIMESTAMP,
    "version": STRING,
    "pid": INTEGER,
    "metadata": OBJECT,
}
_WORKER_ALWAYS: Final = ["id", "state", "queues", "active_jobs", "last_heartbeat_at"]


def _listed(item: str, **more: Schema) -> Schema:
    return answer(items=array(ref(item)), pagination=_PAGINATION, **more)


def _meant(**fields: Schema) -> dict[str, Any]:
    return {
        "minProperties": 1,
        "additionalProperties": False,
        **object_({name: optional(schema) for name, schema in fields.items()}),
    }


def _one_way(filter: str) -> Schema:
    # A filter or ids: what no schema can say is that both at once are refused, and neither too
    # where that would mean every job.
    ids = array(JOB_ID, maxItems=LIMIT)
    meant = {"filter": optional(ref(filter)), "job_ids": optional(ids), "confirm": _CONFIRM}
    return object_(meant, ["confirm"])


SCHEMAS: Final[dict[str, Schema]] = {
    "AdminPagination": object_(
        {
            "total": COUNT,
            "page": COUNT,
            "per_page": COUNT,
            "total_capped": about(BOOLEAN, "There are more than `total`."),
        },
        ["total", "page", "per_page"],
    ),
    "AdminCounts": answer(**{state.value: COUNT for state in State}),
    "AdminQueue": object_(_QUEUE, _QUEUE_ALWAYS),
    "AdminQueueDetail": object_(
        {**_QUEUE, "configuration": OBJECT, "oldest_available_at": TIMESTAMP},
        [*_QUEUE_ALWAYS, "configuration"],
    ),
    "AdminQueues": _listed("AdminQueue"),
    "AdminQueueState": object_(
        {
            "name": STRING,
            "state": enum("active", "paused"),
            "paused": BOOLEAN,
            "paused_at": TIMESTAMP,
            "resumed_at": TIMESTAMP,
        },
        ["name", "state", "paused"],
    ),
    "PurgeRequest": object_(
        {
            "states": array(enum(*(s.value for s in State if s is not State.ACTIVE)), minItems=1),
            "older_than": about(
                optional(TIMESTAMP), f"For {', '.join(sorted(TERMINAL))} jobs alone."
            ),
            "confirm": _CONFIRM,
        },
        ["states", "confirm"],
    ),
    "PurgeAnswer": object_(
        {
            "purged_count": COUNT,
            "states": array(STATE),
            "has_more": about(BOOLEAN, "Ask again for the rest."),
        },
        ["purged_count", "has_more"],
    ),
    "AdminJobItem": object_(
        {
            "id": JOB_ID,
            "type": STRING,
            "queue": STRING,
            "state": STATE,
            "priority": INTEGER,
            "attempt": COUNT,
            "max_attempts": COUNT,
            "created_at": TIMESTAMP,
        },
        ["id", "type", "queue", "state", "priority", "attempt", "created_at"],
    ),
    "AdminJobs": _listed("AdminJobItem"),
    "AdminJob": object_(
        {
            "id": JOB_ID,
            "type": STRING,
            "queue": STRING,
            "state": STATE,
            "args": array(ref("Value")),
            "meta": OBJECT,
            "errors": array(OBJECT),
            "metadata": about(OBJECT, "The times of its life."),
            "previous_state": STATE,
        },
        ["id", "type", "queue", "state", "args", "meta", "errors", "metadata"],
    ),
    "BulkFilter": _meant(**_FILTER, state=_ANY_STATE),
    "DeadLetterFilter": _meant(**_FILTER),
    "BulkRequest": _one_way("BulkFilter"),
    "DeadLetterBulkRequest": _one_way("DeadLetterFilter"),
    "DeadLetterPurgeRequest": object_(
        {"older_than": optional(TIMESTAMP), "confirm": _CONFIRM}, ["confirm"]
    ),
    "BulkAnswer": object_(
        {
            "action": enum("retry", "cancel", "delete"),
            "matched": COUNT,
            "succeeded": COUNT,
            "failed": COUNT,
            "errors": array(answer(job_id=JOB_ID, error=STRING)),
            "has_more": about(BOOLEAN, "The limit of one call was reached: ask again."),
        },
        ["action", "matched", "succeeded", "failed", "errors", "has_more"],
    ),
    "AdminWorker": object_(_WORKER, _WORKER_ALWAYS),
    "AdminWorkerDetail": object_(
        {**_WORKER, "jobs": array(ref("AdminJobItem"))}, [*_WORKER_ALWAYS, "jobs"]
    ),
    "AdminWorkers": _listed(
        "AdminWorker", summary=answer(total=COUNT, running=COUNT, quiet=COUNT, stale=COUNT)
    ),
    "DeregisterAnswer": answer(id=STRING, deregistered=BOOLEAN, jobs_rescheduled=COUNT),
    "AdminStats": answer(
        queues=COUNT, workers=COUNT, jobs=ref("AdminCounts"), uptime_seconds=COUNT, **_RATES
    ),
    "AdminHistory": answer(
        period=STRING,
        data=array(
            object_(
                {
                    "timestamp": TIMESTAMP,
                    **dict.fromkeys(("processed", "failed", "enqueued"), COUNT),
                    **dict.fromkeys(("latency_p50_ms", "latency_p95_ms", "latency_p99_ms"), NUMBER),
                },
                ["timestamp", "processed", "failed", "enqueued"],
            )
        ),
    ),
    "MaintenanceRequest": object_(
        {
            "enabled": BOOLEAN,
            "reason": optional({"type": "string", "minLength": 1, "maxLength": MAX_REASON}),
            "estimated_duration": optional(ref("Duration")),
        },
        ["enabled"],
    ),
    "Maintenance": object_(
        {
            "maintenance": BOOLEAN,
            "reason": STRING,
            "enabled_at": TIMESTAMP,
            "estimated_end": TIMESTAMP,
        },
        ["maintenance"],
    ),
    "SystemConfig": answer(
        implementation=OBJECT, backend=STRING, maintenance=BOOLEAN, configuration=OBJECT
    ),
}
