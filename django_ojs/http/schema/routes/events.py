"""The kept events (ojs-events §6.4)."""

from collections.abc import Mapping
from typing import Final

from django_ojs.http.access import Scope
from django_ojs.http.schema.operation import Answer, Operation, Query
from django_ojs.http.schema.values import JOB_ID, JOB_TYPE, ref
from django_ojs.operations.events.log import DEFAULT_LIMIT, MAX_LIMIT

_LIMIT: Final = {"type": "integer", "minimum": 1, "default": DEFAULT_LIMIT}


def _inside(pattern: str) -> str:
    return pattern.removeprefix("^").removesuffix("$")


def _list_of(pattern: str) -> dict[str, str]:
    return {"type": "string", "pattern": f"^({pattern}(,{pattern})*)?$"}


_AFTER: Final = {
    "type": "string",
    "pattern": f"^([0-9]{{1,18}}|evt_{_inside(JOB_ID['pattern'])})?$",
}
_SEVERAL: Final = "Commas or repetition name several."

ROUTES: Final[Mapping[str, Mapping[str, Operation]]] = {
    "ojs-events": {
        "GET": Operation(
            id="readEvents",
            tag="Events",
            summary="What happened, in the order of the commits",
            text="A reader that goes on from each cursor sees every kept event once. A page may be "
            "empty and have more. A key for some queues sees the events of these alone.",
            scope=Scope.READ,
            query=[
                Query(
                    name="types",
                    text=f"Types, or patterns such as `job.*`. {_SEVERAL}",
                    schema=_list_of(r"(\*|[a-z][a-z_]*\.(\*|[a-z][a-z_]*))"),
                    repeated=True,
                ),
                Query(
                    name="queues",
                    text=_SEVERAL,
                    schema=_list_of(r"[a-z0-9][a-z0-9\-.]{0,254}"),
                    repeated=True,
                ),
                Query(
                    name="job_types",
                    text=f"Types of jobs. {_SEVERAL}",
                    schema=_list_of(_inside(JOB_TYPE["pattern"])),
                    repeated=True,
                ),
                Query(
                    name="after", text="The `cursor` of an answer, or an event's id.", schema=_AFTER
                ),
                Query(name="limit", text=f"More than {MAX_LIMIT} is {MAX_LIMIT}.", schema=_LIMIT),
            ],
            answers={200: Answer(text="The events.", schema=ref("EventsAnswer"))},
        )
    }
}
