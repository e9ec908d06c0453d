"""Dead letters (http-binding §12), and progress (ojs-progress §10)."""

from collections.abc import Mapping
from typing import Final

from django_ojs.http.access import Scope
from django_ojs.http.schema.operation import Answer, Operation, Query
from django_ojs.http.schema.routes.queues import PAGE, or_empty
from django_ojs.http.schema.values import JOB_TYPE, QUEUE_NAME, ref

_MOMENT: Final = {"type": "string", "format": "date-time"}
_WORD: Final = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"}
_PROGRESS: Final = Answer(
    text="How far the latest run is; null where it has reported nothing.",
    schema=ref("ProgressAnswer"),
    headers=("X-OJS-Progress", "Last-Modified"),
)

ROUTES: Final[Mapping[str, Mapping[str, Operation]]] = {
    "ojs-dead-letters": {
        "GET": Operation(
            id="listDeadLetters",
            tag="Dead letters",
            summary="Dead letters, newest first",
            text="Totals are counted up to 10,000.",
            scope=Scope.READ,
            query=[
                Query(name="queue", text="Of this queue.", schema=or_empty(QUEUE_NAME)),
                Query(name="type", text="Of this job type.", schema=or_empty(JOB_TYPE)),
                Query(
                    name="error_type",
                    text="Whose last error is of this type.",
                    schema=or_empty(_WORD),
                ),
                Query(name="since", text="Discarded then or later.", schema=or_empty(_MOMENT)),
                Query(name="until", text="Discarded earlier.", schema=or_empty(_MOMENT)),
                *PAGE,
            ],
            answers={200: Answer(text="The jobs.", schema=ref("DeadLettersAnswer"))},
        )
    },
    "ojs-dead-letter-stats": {
        "GET": Operation(
            id="getDeadLetterStats",
            tag="Dead letters",
            summary="How many there are, by queue and error",
            text="The newest 10,000 count.",
            scope=Scope.READ,
            answers={200: Answer(text="The figures.", schema=ref("DeadLetterStats"))},
        )
    },
    "ojs-dead-letter": {
        "GET": Operation(
            id="getDeadLetter",
            tag="Dead letters",
            summary="A dead letter, with all its errors",
            scope=Scope.READ,
            answers={200: Answer(text="The job.", schema=ref("JobAnswer"))},
        ),
        "DELETE": Operation(
            id="deleteDeadLetter",
            tag="Dead letters",
            summary="Delete a dead letter for good",
            scope=Scope.ADMIN,
            answers={200: Answer(text="Deleted.", schema=ref("DeadLetterDeleted"))},
        ),
    },
    "ojs-dead-letter-retry": {
        "POST": Operation(
            id="retryDeadLetter",
            tag="Dead letters",
            summary="RETRY: give a dead letter all its attempts anew",
            scope=Scope.OPERATOR,
            body=ref("DeadLetterRetryRequest"),
            needs_body=False,
            answers={200: Answer(text="The job, available again.", schema=ref("JobAnswer"))},
            errors=[409, 429],
        )
    },
    "ojs-job-progress": {
        "GET": Operation(
            id="getJobProgress",
            tag="Jobs",
            summary="How far a job is",
            scope=Scope.READ,
            answers={200: _PROGRESS},
        ),
        "PUT": Operation(
            id="reportJobProgress",
            tag="Workers",
            summary="PROGRESS: say how far a run is",
            text="It extends the reservation as BEAT does. A report of a job that is not active "
            "changes nothing, and is no error.",
            scope=Scope.WORKER,
            body=ref("ProgressRequest"),
            answers={200: _PROGRESS},
            errors=[409],
        ),
    },
}
