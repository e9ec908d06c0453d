"""Queues (http-binding §11, ojs-queue-config §9)."""

from collections.abc import Mapping
from typing import Any, Final

from django_ojs.http.access import Scope
from django_ojs.http.pagination import DEFAULT_LIMIT, MAX_LIMIT, MAX_OFFSET
from django_ojs.http.schema.operation import Answer, Operation, Query
from django_ojs.http.schema.values import QUEUE_NAME, STRING, Schema, ref

#: A parameter that is empty is one that is left out.
_EMPTY: Final[Schema] = {"type": "string", "maxLength": 0}

PAGE: Final = (
    Query(
        name="limit",
        text=f"More than {MAX_LIMIT} is {MAX_LIMIT}.",
        schema={
            "anyOf": [{"type": "integer", "minimum": 1}, _EMPTY],
            "default": DEFAULT_LIMIT,
        },
    ),
    Query(
        name="offset",
        text="How many to leave out; cursors reach further.",
        schema={
            "anyOf": [{"type": "integer", "minimum": 0, "maximum": MAX_OFFSET}, _EMPTY],
            "default": 0,
        },
    ),
    Query(name="cursor", text="The `next_cursor` of the page before.", schema=STRING),
)

_PATH: Final = {"name": QUEUE_NAME}


def or_empty(schema: Schema) -> Schema:
    """Let a parameter of the query be empty."""
    return {"anyOf": [schema, _EMPTY]}


def _operation(
    id: str, summary: str, scope: Scope, said: str, name: str, status: int = 200, **more: Any
) -> Operation:
    return Operation(
        id=id,
        tag="Queues",
        summary=summary,
        scope=scope,
        path=_PATH,
        answers={status: Answer(text=said, schema=ref(name))},
        **more,
    )


ROUTES: Final[Mapping[str, Mapping[str, Operation]]] = {
    "ojs-queues": {
        "GET": _operation(
            "listQueues",
            "The queues there are, by name",
            Scope.READ,
            "Queues that somebody spoke of, and those that have jobs.",
            "QueuesAnswer",
            query=PAGE,
        ),
        "POST": Operation(
            id="createQueue",
            tag="Queues",
            summary="Create a queue before its first job",
            text="Nothing needs it: a queue is there with its first job.",
            scope=Scope.ADMIN,
            body=ref("QueueRequest"),
            answers={
                201: Answer(text="Created.", schema=ref("QueueAnswer"), headers=("Location",))
            },
            errors=[409],
        ),
    },
    "ojs-queue": {
        "GET": _operation("getQueue", "A queue as it is", Scope.READ, "The queue.", "QueueDetail"),
        "DELETE": _operation(
            "deleteQueue",
            "Delete a queue; say what becomes of the jobs that wait",
            Scope.ADMIN,
            "Deleted, or `draining` while jobs run or more wait than one request takes.",
            "QueueDeleted",
            202,
            text="`strategy` and `target_queue` may stand in the query too. Without a strategy it "
            "is `reject`: a queue with jobs that have not ended is a conflict. A target queue that "
            "becomes full ends the move; `details.jobs_affected` says how many are there.",
            body=ref("QueueDeletion"),
            needs_body=False,
            errors=[409, 429],
        ),
    },
    "ojs-queue-config": {
        "GET": _operation(
            "getQueueConfig",
            "What holds for a queue",
            Scope.READ,
            "The configuration, with what the default policy adds.",
            "QueueConfigAnswer",
            text="The name `_default` is the default policy.",
        ),
        "PUT": _operation(
            "configureQueue",
            "Change what holds for a queue",
            Scope.ADMIN,
            "The configuration, with what the default policy adds.",
            "QueueConfigAnswer",
            text="A queue that is not known is created. The name `_default` is the default policy.",
            body=ref("QueueConfigRequest"),
        ),
    },
    "ojs-queue-stats": {
        "GET": _operation(
            "getQueueStats", "The figures of a queue", Scope.READ, "The figures.", "QueueStats"
        )
    },
    "ojs-queue-pause": {
        "POST": _operation(
            "pauseQueue",
            "Hand out no more jobs of a queue",
            Scope.OPERATOR,
            "Paused. The queue takes jobs all the same.",
            "QueuePaused",
        )
    },
    "ojs-queue-resume": {
        "POST": _operation(
            "resumeQueue",
            "Hand out the jobs of a queue again",
            Scope.OPERATOR,
            "Resumed.",
            "QueueResumed",
        )
    },
}
