"""The routes of the control plane, all under one prefix (ojs-admin-api §5).

A proxy can therefore have rules by path for the control plane.
"""

from typing import Final

from django_ojs.http.routing import route
from django_ojs.http.views.admin import (
    bulk,
    dead_letter,
    jobs,
    queues,
    system,
    workers,
)

_ADMIN: Final = "v1/admin"
_QUEUE: Final = f"{_ADMIN}/queues/<str:name>"
_JOB: Final = f"{_ADMIN}/jobs/<str:key>"
# The id of a worker may have slashes, because the path was decoded.
_WORKER: Final = f"{_ADMIN}/workers/<path:key>"
_DEAD_LETTER: Final = f"{_ADMIN}/dead-letter/<str:key>"

urlpatterns = [
    route(f"{_ADMIN}/queues", queues.AdminQueues, "ojs-admin-queues"),
    route(_QUEUE, queues.AdminQueue, "ojs-admin-queue"),
    route(f"{_QUEUE}/pause", queues.AdminQueueChange, "ojs-admin-queue-pause", change="pause"),
    route(f"{_QUEUE}/drain", queues.AdminQueueChange, "ojs-admin-queue-drain", change="drain"),
    route(f"{_QUEUE}/resume", queues.AdminQueueChange, "ojs-admin-queue-resume", change="resume"),
    route(f"{_QUEUE}/config", queues.AdminQueueConfig, "ojs-admin-queue-config"),
    route(f"{_QUEUE}/jobs", queues.AdminQueueJobs, "ojs-admin-queue-jobs"),
    route(f"{_ADMIN}/jobs", jobs.AdminJobs, "ojs-admin-jobs"),
    route(f"{_ADMIN}/jobs/bulk/retry", bulk.BulkRetry, "ojs-admin-bulk-retry"),
    route(f"{_ADMIN}/jobs/bulk/cancel", bulk.BulkCancel, "ojs-admin-bulk-cancel"),
    route(f"{_ADMIN}/jobs/bulk/delete", bulk.BulkDelete, "ojs-admin-bulk-delete"),
    route(_JOB, jobs.AdminJob, "ojs-admin-job"),
    route(f"{_JOB}/cancel", jobs.AdminJobCancel, "ojs-admin-job-cancel"),
    route(f"{_JOB}/retry", jobs.AdminJobRetry, "ojs-admin-job-retry"),
    route(f"{_ADMIN}/workers", workers.AdminWorkers, "ojs-admin-workers"),
    # The actions come first, because the path of a worker would match theirs too.
    route(f"{_WORKER}/quiet", workers.AdminWorkerQuiet, "ojs-admin-worker-quiet"),
    route(f"{_WORKER}/resume", workers.AdminWorkerResume, "ojs-admin-worker-resume"),
    route(f"{_WORKER}/terminate", workers.AdminWorkerTerminate, "ojs-admin-worker-terminate"),
    route(_WORKER, workers.AdminWorker, "ojs-admin-worker"),
    route(f"{_ADMIN}/dead-letter", dead_letter.AdminDeadLetters, "ojs-admin-dead-letters"),
    route(f"{_ADMIN}/dead-letter/retry", bulk.DeadLetterBulkRetry, "ojs-admin-dead-letters-retry"),
    route(f"{_ADMIN}/dead-letter/stats", dead_letter.AdminDeadLetterStats, "ojs-admin-dead-stats"),
    route(_DEAD_LETTER, dead_letter.AdminDeadLetter, "ojs-admin-dead-letter"),
    route(f"{_DEAD_LETTER}/retry", dead_letter.AdminDeadLetterRetry, "ojs-admin-dead-letter-retry"),
    route(f"{_ADMIN}/system/maintenance", system.AdminMaintenance, "ojs-admin-maintenance"),
    route(f"{_ADMIN}/system/config", system.AdminSystemConfig, "ojs-admin-config"),
]
