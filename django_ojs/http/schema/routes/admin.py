"""The control plane (ojs-admin-api)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from django_ojs.http.access import Scope
from django_ojs.http.pagination import DEFAULT_PER_PAGE, MAX_PAGE, MAX_PER_PAGE
from django_ojs.http.schema.components.admin import PRIORITY, SHORT, STATE, TYPE_OR_PREFIX
from django_ojs.http.schema.operation import Answer, Operation, Query
from django_ojs.http.schema.values import OBJECT, QUEUE_NAME, TIMESTAMP, Schema, enum, ref
from django_ojs.operations.figures.history import PERIODS
from django_ojs.operations.jobs.search import SORTS


def _query(name: str, text: str, schema: Schema) -> Query:
    # What is empty is left out.
    return Query(
        name=name, text=text, schema={"anyOf": [schema, {"type": "string", "maxLength": 0}]}
    )


_PAGES: Final = (
    _query("page", "From 1.", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE}),
    _query(
        "per_page",
        f"{DEFAULT_PER_PAGE} by default; more than {MAX_PER_PAGE} is {MAX_PER_PAGE}.",
        {"type": "integer", "minimum": 1},
    ),
)
_TIMES: Final = (
    _query("since", "Part of the range.", TIMESTAMP),
    _query("until", "Not part of it.", TIMESTAMP),
)
_QUEUE: Final = _query("queue", "One queue.", QUEUE_NAME)
_FILTER: Final = (
    _QUEUE,
    _query("type", "A type, or a prefix and `*`.", TYPE_OR_PREFIX),
    _query("priority", "One priority.", PRIORITY),
    _query("error_type", "The type of the latest error.", SHORT),
    *_TIMES,
    Query(name="sort", text="What orders the list.", schema=enum(*SORTS)),
    Query(name="order", text="Descending by default.", schema=enum("asc", "desc")),
    *_PAGES,
)
_STATE: Final = Query(
    name="state", text="Commas or repetition name several.", schema=STATE, repeated=True
)
_NAME: Final = {"name": QUEUE_NAME}
_WORKER: Final = {"key": SHORT}
_CONFIRMED: Final = "`confirm` has to be true."
_OPERATOR, _ADMIN = Scope.OPERATOR, Scope.ADMIN


def _one(id: str, summary: str, answered: str, scope: Scope = _OPERATOR, **more: Any) -> Operation:
    text = more.pop("answer_text", "Done.")
    return Operation(
        id=id,
        tag="Admin",
        summary=summary,
        scope=scope,
        answers={200: Answer(text=text, schema=ref(answered))},
        **more,
    )


def _get(id: str, summary: str, answered: str, query: Sequence[Query] = (), **more: Any) -> Any:
    shown = _one(id, summary, answered, query=query, answer_text="As it is.", **more)
    return {"GET": shown}


def _post(id: str, summary: str, answered: str, **more: Any) -> Any:
    return {"POST": _one(id, summary, answered, **more)}


def _bulk(id: str, summary: str, body: str = "BulkRequest", **more: Any) -> Any:
    text = f"By a filter or by ids, up to 10,000 in one call. {_CONFIRMED}"
    return _post(id, summary, "BulkAnswer", body=ref(body), text=text, **more)


_QUEUES: Final[Mapping[str, Mapping[str, Operation]]] = {
    "ojs-admin-queues": _get("listQueues_admin", "Queues, counts and rates", "AdminQueues", _PAGES),
    "ojs-admin-queue": _get("getQueue_admin", "A queue", "AdminQueueDetail", path=_NAME),
    "ojs-admin-queue-pause": _post(
        "pauseQueue_admin", "Hand out no more jobs of a queue", "AdminQueueState", path=_NAME
    ),
    "ojs-admin-queue-resume": _post(
        "resumeQueue_admin", "Hand them out again", "AdminQueueState", path=_NAME
    ),
    "ojs-admin-queue-config": {
        "PUT": _one(
            "configureQueue_admin",
            "Change a queue's configuration",
            "AdminQueueDetail",
            text="By top-level key, at once. A queue that is not known is created.",
            scope=_ADMIN,
            body=OBJECT,
            path=_NAME,
        )
    },
    "ojs-admin-queue-jobs": {
        "DELETE": _one(
            "purgeQueue",
            "Delete a queue's jobs in some states",
            "PurgeAnswer",
            _ADMIN,
            text=f"Running jobs stay. {_CONFIRMED}",
            body=ref("PurgeRequest"),
            path=_NAME,
        )
    },
}
_JOBS: Final[Mapping[str, Mapping[str, Operation]]] = {
    "ojs-admin-jobs": _get("listJobs", "Look for jobs", "AdminJobs", [_STATE, *_FILTER]),
    "ojs-admin-bulk-retry": _bulk("retryJobs", "Retry discarded jobs"),
    "ojs-admin-bulk-cancel": _bulk("cancelJobs", "Cancel jobs that have not ended"),
    "ojs-admin-bulk-delete": _bulk("deleteJobs", "Delete jobs that have ended", scope=_ADMIN),
    "ojs-admin-job": _get("getJob_admin", "A job with its history", "AdminJob"),
    "ojs-admin-job-cancel": _post("cancelJob_admin", "CANCEL", "AdminJob", errors=[409]),
    "ojs-admin-job-retry": _post(
        "retryJob", "RETRY: a discarded job starts anew", "AdminJob", errors=[409, 429]
    ),
}
_WORKERS: Final[Mapping[str, Mapping[str, Operation]]] = {
    "ojs-admin-workers": _get("listWorkers", "Workers", "AdminWorkers", _PAGES),
    "ojs-admin-worker": {
        **_get("getWorker", "A worker and its jobs", "AdminWorkerDetail", path=_WORKER),
        "DELETE": _one(
            "deregisterWorker",
            "Forget a stale worker, and give its jobs back",
            "DeregisterAnswer",
            path=_WORKER,
            errors=[409],
        ),
    },
    **{
        f"ojs-admin-worker-{name}": _post(
            f"{name}Worker", summary, "AdminWorker", path=_WORKER, errors=[409]
        )
        for name, summary in {
            "quiet": "Let a worker fetch no more jobs",
            "resume": "Let it fetch jobs again",
            "terminate": "Let it finish, and end",
        }.items()
    },
}
_DEAD_LETTERS: Final[Mapping[str, Mapping[str, Operation]]] = {
    "ojs-admin-dead-letters": {
        **_get("listDeadLetters_admin", "Look for dead letters", "AdminJobs", _FILTER),
        "DELETE": _one(
            "purgeDeadLetters",
            "Delete dead letters",
            "PurgeAnswer",
            _ADMIN,
            text=f"All, or those of a `filter` or older than `older_than`. {_CONFIRMED}",
            body=ref("DeadLetterPurgeRequest"),
        ),
    },
    "ojs-admin-dead-letters-retry": _bulk(
        "retryDeadLetters_admin", "Retry dead letters", "DeadLetterBulkRequest"
    ),
    "ojs-admin-dead-stats": _get(
        "getDeadLetterStats_admin", "Dead letters by queue and error", "DeadLetterStats"
    ),
    "ojs-admin-dead-letter": {
        **_get("getDeadLetter_admin", "A dead letter with its history", "AdminJob"),
        "DELETE": Operation(
            id="deleteDeadLetter_admin",
            tag="Admin",
            summary="Delete a dead letter",
            scope=_ADMIN,
            answers={204: Answer(text="Deleted.")},
            errors=[409],
        ),
    },
    "ojs-admin-dead-letter-retry": _post(
        "retryDeadLetter_admin", "Retry a dead letter", "AdminJob", errors=[409, 429]
    ),
}
_SYSTEM: Final[Mapping[str, Mapping[str, Operation]]] = {
    "ojs-admin-stats": _get("getStats", "All queues together", "AdminStats"),
    "ojs-admin-history": _get(
        "getHistory",
        "What happened over time",
        "AdminHistory",
        [
            Query(name="period", text="The width of a point.", schema=enum(*PERIODS)),
            _QUEUE,
            *_TIMES,
        ],
    ),
    "ojs-admin-maintenance": {
        **_get("getMaintenance", "Whether maintenance mode is on", "Maintenance"),
        **_post(
            "setMaintenance",
            "Hand out and promote nothing, or go on",
            "Maintenance",
            scope=_ADMIN,
            body=ref("MaintenanceRequest"),
        ),
    },
    "ojs-admin-config": _get("getConfig", "This server's configuration", "SystemConfig"),
}

ROUTES: Final[Mapping[str, Mapping[str, Operation]]] = {
    **_QUEUES,
    **_JOBS,
    **_WORKERS,
    **_DEAD_LETTERS,
    **_SYSTEM,
}
