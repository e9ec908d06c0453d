"""Remove offloaded arguments whose job does not exist: rolled back, pruned, deleted elsewhere.

A job that waits in the outbox for room in its queue exists, however long that takes.
"""

import logging
import threading
from typing import Any, Final
from uuid import UUID

from django.db import connections

from django_ojs.conf import settings
from django_ojs.models import Job
from django_ojs.operations.enqueue import outbox
from django_ojs.payloads import offload, s3
from django_ojs.spec.payload_config import Offload

logger = logging.getLogger("django_ojs.payloads")

#: Seconds between two sweeps of one worker.
EVERY: Final = 3_600.0


def sweep() -> int:
    """Look at all objects once. Return how many were removed.

    Objects younger than `sweep_after` stay: the transaction that needs them may be open.
    """
    config = settings().offload
    if config is None:
        return 0
    removed = 0
    pages = s3.client().get_paginator("list_objects_v2")
    for page in pages.paginate(Bucket=config.bucket, Prefix=config.prefix):
        lost = _lost(page, config)
        offload.remove([f"s3://{config.bucket}/{key}" for key in lost])
        removed += len(lost)
    return removed


def _lost(page: dict[str, Any], config: Offload) -> list[str]:
    old: dict[str, UUID] = {}
    for found in page.get("Contents", ()):
        job_id = offload.job_of_key(found["Key"])
        # What is not called as ours are was put there by somebody else.
        if job_id is not None and s3.age(page, found["LastModified"]) >= config.sweep_after:
            old[found["Key"]] = job_id
    if not old:
        return []
    keys = set(old.values())
    # First those that wait: one that leaves the outbox meanwhile is among the jobs then.
    known = outbox.waiting(keys)
    known |= set(Job.primary.filter(pk__in=keys).values_list("pk", flat=True))
    return [key for key, job_id in old.items() if job_id not in known]


class Sweeper:
    """Sweeps now and then, in a thread of its own: S3 may be slow, and jobs that are due not."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def start(self) -> int:
        """Begin a sweep, unless one is under way or there is nothing to sweep. Return 0."""
        running = self._thread is not None and self._thread.is_alive()
        if settings().offload is not None and not running:
            self._thread = threading.Thread(target=self._work, name="ojs-sweep", daemon=True)
            self._thread.start()
        return 0

    def _work(self) -> None:
        try:
            removed = sweep()
            if removed:
                logger.info("%d offloaded arguments of no job were removed", removed)
        except Exception as error:
            # Without its text: it may name the object.
            logger.warning("The sweep of OFFLOAD ended early (%s)", type(error).__name__)
        finally:
            connections.close_all()
