"""The description of every route, by its name in `urls.py` and by method."""

from collections.abc import Mapping
from typing import Final

from django_ojs.http.schema.operation import Operation
from django_ojs.http.schema.routes import jobs, system, workers

#: In the order in which a reader meets them.
TAGS: Final = {
    "Jobs": "Store jobs, look at them, cancel them.",
    "Workers": "Claim jobs and answer for them.",
    "System": "What is served here, and whether it is well.",
}

ROUTES: Final[Mapping[str, Mapping[str, Operation]]] = {
    **jobs.ROUTES,
    **workers.ROUTES,
    **system.ROUTES,
}
