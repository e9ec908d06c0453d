"""Remove offloaded arguments whose job does not exist: rolled back, pruned, deleted elsewhere.

A job that waits in the outbox counts as existing, however long it waits.
"""

import logging
import threading
from typing import Any, Final
from uuid import UUID

from django.db import connections

from django_ojs.conf import of
from django_ojs.extensions.payloads import offload, s3_client
from django_ojs.extensions.payloads.settings import Offload, PayloadSettings
from django_ojs.hooks import kept
from django_ojs.models import Job

logger = logging.getLogger("django_ojs.extensions.payloads")

#: Seconds between two sweeps of one worker.
INTERVAL: Final = 3_600.0


def sweep() -> int:
    """Check all objects once. Return how many were removed.

    Objects younger than `sweep_after` stay: the transaction that enqueues their job may be open.
    """
    config = of(PayloadSettings).offload
    if config is None:
        return 0
    removed = 0
    pages = s3_client.client().get_paginator("list_objects_v2")
    for page in pages.paginate(Bucket=config.bucket, Prefix=config.prefix):
        orphans = _orphans(page, config)
        offload.remove([f"s3://{config.bucket}/{key}" for key in orphans])
        removed += len(orphans)
    return removed


def _orphans(page: dict[str, Any], config: Offload) -> list[str]:
    old: dict[str, UUID] = {}
    for found in page.get("Contents", ()):
        job_id = offload.job_of_key(found["Key"])
        # An object with another kind of name is not ours.
        if job_id is not None and s3_client.age(page, found["LastModified"]) >= config.sweep_after:
            old[found["Key"]] = job_id
    if not old:
        return []
    keys = set(old.values())
    # The outboxes are read first, because a job that leaves one in between is then found among the
    # jobs.
    known = set(kept(keys, everywhere=True))
    known |= set(Job.primary.filter(pk__in=keys).values_list("pk", flat=True))
    return [key for key, job_id in old.items() if job_id not in known]


class Sweeper:
    """Sweeps in a thread of its own, because a slow S3 must not delay other maintenance."""

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None

    def start(self) -> int:
        """Start a sweep, unless one is running or nothing is offloaded. Return 0."""
        running = self.thread is not None and self.thread.is_alive()
        if of(PayloadSettings).offload is not None and not running:
            self.thread = threading.Thread(target=self._work, name="ojs-sweep", daemon=True)
            self.thread.start()
        return 0

    def _work(self) -> None:
        try:
            removed = sweep()
            if removed:
                logger.info("%d offloaded arguments without a job were removed", removed)
        except Exception as error:
            # The message of the error is left out, because it may name the object.
            logger.warning(
                "The sweep for offloaded arguments without a job ended early (%s)",
                type(error).__name__,
            )
        finally:
            connections.close_all()
