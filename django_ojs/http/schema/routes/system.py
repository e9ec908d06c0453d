"""Manifest, health, readiness, and this document. For everybody; and metrics."""

from collections.abc import Mapping
from typing import Final

from django_ojs.http.access import Scope
from django_ojs.http.schema.operation import Answer, Operation
from django_ojs.http.schema.values import STRING, ref


def _look(id: str, summary: str, *, report: str | None = None, schema: str) -> Operation:
    answers = {200: Answer(text=summary, schema=ref(schema))}
    if report is not None:
        answers[503] = Answer(text=report, schema=ref(schema), headers=("Retry-After",))
    return Operation(id=id, tag="System", summary=summary, answers=answers)


_DOWN: Final = "The database does not answer."

ROUTES: Final[Mapping[str, Mapping[str, Operation]]] = {
    "ojs-manifest": {"GET": _look("manifest", "What is served here", schema="Manifest")},
    "ojs-health": {
        "GET": _look("health", "Whether the server is well", report=_DOWN, schema="Health")
    },
    "ojs-ready": {
        "GET": _look("ready", "Whether requests should come here", report=_DOWN, schema="Health")
    },
    "ojs-metrics": {
        "GET": Operation(
            id="metrics",
            tag="System",
            summary="Metrics for Prometheus",
            text="Of the queues that the caller may use. 404 where the server has no such package.",
            scope=Scope.READ,
            answers={200: Answer(text="Metrics.", schema=STRING, media_type="text/plain")},
            errors=[404],
        )
    },
    "ojs-openapi": {"GET": _look("openapi", "This document", schema="OpenAPI")},
}
