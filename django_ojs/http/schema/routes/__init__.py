"""The description of every route, by its name in `urls.py` and by method."""

from collections.abc import Mapping
from typing import Final

from django_ojs.http.schema.operation import Operation
from django_ojs.http.schema.routes import admin, dead_letter, events, jobs, queues, system, workers

#: In the order in which a reader meets them.
TAGS: Final = {
    "Jobs": "Store jobs, look at them, cancel them.",
    "Workers": "Claim jobs and answer for them.",
    "Queues": "Look at them, configure, pause and delete them.",
    "Dead letters": "Jobs that nothing will run again, unless somebody says so.",
    "Events": "What happened, for whoever polls.",
    "Admin": "The control plane: look for jobs, change many at once, direct workers.",
    "System": "What is served here, and whether it is well.",
}

ROUTES: Final[Mapping[str, Mapping[str, Operation]]] = {
    **jobs.ROUTES,
    **workers.ROUTES,
    **queues.ROUTES,
    **dead_letter.ROUTES,
    **events.ROUTES,
    **admin.ROUTES,
    **system.ROUTES,
}
