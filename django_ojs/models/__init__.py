"""The models: jobs, unsuccessful runs, queues, workers and others.

`apps.py` loads the models that only HTTP or the admin need, and they are attributes of this module
from then on. An extension has its own, in `extensions/<subject>/models.py`.
"""

from typing import TYPE_CHECKING, Any

from django.apps import apps

from django_ojs.models.actor_kind import ActorKind
from django_ojs.models.attempt import Attempt
from django_ojs.models.job import DeadLetterJob, Job
from django_ojs.models.known_name import KnownName
from django_ojs.models.lease import Lease
from django_ojs.models.queue import Overview, Queue
from django_ojs.models.worker import Worker

if TYPE_CHECKING:
    from django_ojs.models.api_key import ApiKey
    from django_ojs.models.bulk_operation import BulkOperation, BulkOperationJob
    from django_ojs.models.incident import Incident

__all__ = [
    "ActorKind",
    "ApiKey",
    "Attempt",
    "BulkOperation",
    "BulkOperationJob",
    "DeadLetterJob",
    "Incident",
    "Job",
    "KnownName",
    "Lease",
    "Overview",
    "Queue",
    "Worker",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    models = apps.all_models["django_ojs"]
    if name.lower() not in models:
        # An app that comes before this one in INSTALLED_APPS may ask for a model before it is
        # loaded.
        apps.get_app_config("django_ojs").import_models()
    return models[name.lower()]
