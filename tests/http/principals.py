"""Who may do what: one line for each method of each route.

A new route needs a line here: what is asked, the name of the route, the least right that does it,
and what somebody meets who is kept to another queue. The test names what has no line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: What a key for the queue "mine" gets where something belongs to the queue "other".
DENIED = "denied"  # 403
HIDDEN = "hidden"  # a success, without what is in the other queue
OPEN = "open"  # nothing here belongs to a queue
NONE = "nothing"  # 422, whoever asks: it is not for plain requests
ALL = "all queues"  # 403, because it concerns all queues at once

EVERYBODY, READ, PRODUCER, WORKER = "everybody", "read", "producer", "worker"
OPERATOR, ADMIN = "operator", "admin"

#: What each right includes, as a caller with that right alone sees it.
MAY = {
    "anonymous": {EVERYBODY},
    READ: {EVERYBODY, READ},
    PRODUCER: {EVERYBODY, PRODUCER},
    WORKER: {EVERYBODY, WORKER},
    OPERATOR: {EVERYBODY, READ, PRODUCER, OPERATOR},
    ADMIN: {EVERYBODY, READ, PRODUCER, WORKER, OPERATOR, ADMIN},
}


@dataclass(frozen=True)
class Line:
    """One line. "{job}" in `body` and `query` becomes the id of a job of the other queue."""

    method: str
    route: str
    least: str
    elsewhere: str
    body: Any = None
    query: str = ""


ERROR = {"type": "Boom", "message": "it broke"}
JOB = {"type": "a", "args": [], "queue": "other"}
SURE = {"confirm": True}

TABLE = [
    # System
    Line("GET", "ojs-manifest", EVERYBODY, OPEN),
    Line("GET", "ojs-health", EVERYBODY, OPEN),
    Line("GET", "ojs-ready", EVERYBODY, OPEN),
    Line("GET", "ojs-health-findings", READ, HIDDEN),
    Line("GET", "ojs-openapi", EVERYBODY, OPEN),
    Line("GET", "ojs-metrics", READ, HIDDEN),
    # Jobs
    Line("POST", "ojs-jobs", PRODUCER, DENIED, JOB),
    Line("POST", "ojs-jobs-batch", PRODUCER, DENIED, {"jobs": [JOB | {"queue": "mine"}, JOB]}),
    Line("GET", "ojs-job", READ, DENIED),
    Line("DELETE", "ojs-job", OPERATOR, DENIED),
    Line("POST", "ojs-job-cancel", OPERATOR, DENIED),
    Line("POST", "ojs-job-activate", PRODUCER, DENIED),
    Line("POST", "ojs-job-ack", WORKER, DENIED),
    Line("POST", "ojs-job-nack", WORKER, DENIED, {"error": ERROR}),
    Line("GET", "ojs-job-progress", READ, DENIED),
    Line("PUT", "ojs-job-progress", WORKER, DENIED, {"progress": 0.5}),
    Line("GET", "ojs-job-history", READ, DENIED),
    Line("DELETE", "ojs-job-history", ADMIN, DENIED),
    Line("GET", "ojs-job-lineage", READ, DENIED),
    Line("GET", "ojs-job-checkpoint", READ, DENIED),
    Line("POST", "ojs-job-checkpoint", WORKER, DENIED, {"state": 1}),
    Line("PUT", "ojs-job-checkpoint", WORKER, DENIED, {"state": 1}),
    Line("DELETE", "ojs-job-checkpoint", OPERATOR, DENIED),
    Line("GET", "ojs-job-steps", WORKER, DENIED, query="?run=1"),
    Line("POST", "ojs-job-steps", WORKER, DENIED, {"run": 1, "number": 0, "name": "a"}),
    Line("POST", "ojs-job-suspend", WORKER, DENIED, {"run": 1, "number": 0, "name": "a"}),
    Line("POST", "ojs-signals", PRODUCER, ALL, {"name": "a", "key": "b"}),
    Line("POST", "ojs-worker-progress", WORKER, DENIED, {"job_id": "{job}", "progress": 0.5}),
    # Workers
    Line("POST", "ojs-fetch", WORKER, DENIED, {"queues": ["mine", "other"]}),
    Line("POST", "ojs-ack", WORKER, DENIED, {"job_id": "{job}"}),
    Line("POST", "ojs-nack", WORKER, DENIED, {"job_id": "{job}", "error": ERROR}),
    Line("POST", "ojs-heartbeat", WORKER, DENIED, {"worker_id": "w", "active_jobs": ["{job}"]}),
    Line("POST", "ojs-beat", WORKER, DENIED, {"worker_id": "w", "active_jobs": ["{job}"]}),
    # Queues
    Line("GET", "ojs-queues", READ, HIDDEN),
    Line("POST", "ojs-queues", ADMIN, DENIED, {"name": "other"}),
    Line("GET", "ojs-queue", READ, DENIED),
    Line("DELETE", "ojs-queue", ADMIN, DENIED),
    Line("GET", "ojs-queue-config", READ, DENIED),
    Line("PUT", "ojs-queue-config", ADMIN, DENIED, {"max_envelope_bytes": 3}),
    Line("GET", "ojs-queue-stats", READ, DENIED),
    Line("POST", "ojs-queue-pause", OPERATOR, DENIED),
    Line("POST", "ojs-queue-drain", OPERATOR, DENIED),
    Line("POST", "ojs-queue-resume", OPERATOR, DENIED),
    # Dead letters
    Line("GET", "ojs-dead-letters", READ, HIDDEN),
    Line("GET", "ojs-dead-letter-stats", READ, HIDDEN),
    Line("GET", "ojs-dead-letter", READ, DENIED),
    Line("DELETE", "ojs-dead-letter", ADMIN, DENIED),
    Line("POST", "ojs-dead-letter-retry", OPERATOR, DENIED),
    # Cron jobs
    Line("GET", "ojs-cron", READ, HIDDEN),
    Line("POST", "ojs-cron", ADMIN, DENIED, JOB | {"name": "other", "cron": "@daily"}),
    Line("GET", "ojs-cron-job", READ, DENIED),
    Line("PATCH", "ojs-cron-job", OPERATOR, DENIED, {"enabled": False}),
    Line("DELETE", "ojs-cron-job", ADMIN, DENIED),
    # Workflows
    Line("GET", "ojs-workflows", READ, HIDDEN),
    Line("POST", "ojs-workflows", PRODUCER, DENIED, {"type": "chain", "steps": [JOB]}),
    Line("GET", "ojs-workflow", READ, DENIED),
    Line("DELETE", "ojs-workflow", OPERATOR, DENIED),
    Line("GET", "ojs-workflow-progress", READ, DENIED),
    Line("GET", "ojs-workflow-history", READ, DENIED),
    # Events
    Line("GET", "ojs-events", READ, HIDDEN),
    Line("GET", "ojs-event-stream", READ, DENIED, query="?channel=queue:other"),
    Line("GET", "ojs-job-events", READ, DENIED),
    Line("GET", "ojs-job-progress-stream", READ, DENIED),
    Line("GET", "ojs-queue-events", READ, DENIED),
    # Webhooks
    Line("GET", "ojs-webhooks", OPERATOR, HIDDEN),
    Line("POST", "ojs-webhooks", ADMIN, ALL, {"url": "https://a.test", "events": ["queue.*"]}),
    Line("GET", "ojs-webhook", OPERATOR, HIDDEN),
    Line("PATCH", "ojs-webhook", ADMIN, HIDDEN, {"active": False}),
    Line("DELETE", "ojs-webhook", ADMIN, HIDDEN),
    Line("POST", "ojs-webhook-test", ADMIN, HIDDEN),
    Line("POST", "ojs-webhook-secret", ADMIN, HIDDEN),
    Line("GET", "ojs-webhook-deliveries", OPERATOR, HIDDEN),
    Line("GET", "ojs-webhook-delivery", OPERATOR, HIDDEN),
    Line("POST", "ojs-webhook-delivery-retry", OPERATOR, HIDDEN),
    # The control plane
    Line("GET", "ojs-rate-limits", READ, ALL),
    Line("GET", "ojs-rate-limit", READ, ALL),
    Line("PUT", "ojs-rate-limit", ADMIN, ALL, {"concurrency": 3}),
    Line("DELETE", "ojs-rate-limit", ADMIN, ALL),
    Line("GET", "ojs-admin-scheduling-stats", OPERATOR, HIDDEN),
    Line("GET", "ojs-admin-queues", OPERATOR, HIDDEN),
    Line("GET", "ojs-admin-queue", OPERATOR, DENIED),
    Line("POST", "ojs-admin-queue-pause", OPERATOR, DENIED),
    Line("POST", "ojs-admin-queue-drain", OPERATOR, DENIED),
    Line("POST", "ojs-admin-queue-resume", OPERATOR, DENIED),
    Line("PUT", "ojs-admin-queue-config", ADMIN, DENIED, {"max_envelope_bytes": 3}),
    Line("PUT", "ojs-admin-queue-rate-limit", ADMIN, DENIED, {"concurrency": 3}),
    Line("DELETE", "ojs-admin-queue-jobs", ADMIN, DENIED, SURE | {"states": ["discarded"]}),
    Line("GET", "ojs-admin-jobs", OPERATOR, HIDDEN),
    Line("POST", "ojs-admin-bulk-retry", OPERATOR, HIDDEN, SURE | {"job_ids": ["{job}"]}),
    Line("POST", "ojs-admin-bulk-cancel", OPERATOR, HIDDEN, SURE | {"job_ids": ["{job}"]}),
    Line("POST", "ojs-admin-bulk-delete", ADMIN, HIDDEN, SURE | {"job_ids": ["{job}"]}),
    Line("GET", "ojs-admin-job", OPERATOR, DENIED),
    Line("POST", "ojs-admin-job-cancel", OPERATOR, DENIED),
    Line("POST", "ojs-admin-job-retry", OPERATOR, DENIED),
    Line("GET", "ojs-admin-workers", OPERATOR, HIDDEN),
    Line("GET", "ojs-admin-worker", OPERATOR, HIDDEN),
    Line("DELETE", "ojs-admin-worker", OPERATOR, ALL),
    Line("POST", "ojs-admin-worker-quiet", OPERATOR, ALL),
    Line("POST", "ojs-admin-worker-resume", OPERATOR, ALL),
    Line("POST", "ojs-admin-worker-terminate", OPERATOR, ALL),
    Line("GET", "ojs-admin-stats", OPERATOR, HIDDEN),
    Line("GET", "ojs-admin-history", OPERATOR, HIDDEN),
    Line("GET", "ojs-admin-dead-letters", OPERATOR, HIDDEN),
    Line("DELETE", "ojs-admin-dead-letters", ADMIN, HIDDEN, SURE),
    Line("POST", "ojs-admin-dead-letters-retry", OPERATOR, HIDDEN, SURE | {"job_ids": ["{job}"]}),
    Line("GET", "ojs-admin-dead-stats", OPERATOR, HIDDEN),
    Line("GET", "ojs-admin-dead-letter", OPERATOR, DENIED),
    Line("DELETE", "ojs-admin-dead-letter", ADMIN, DENIED),
    Line("POST", "ojs-admin-dead-letter-retry", OPERATOR, DENIED),
    Line("GET", "ojs-admin-maintenance", OPERATOR, OPEN),
    Line("POST", "ojs-admin-maintenance", ADMIN, ALL, {"enabled": False}),
    Line("GET", "ojs-admin-config", OPERATOR, OPEN),
]
