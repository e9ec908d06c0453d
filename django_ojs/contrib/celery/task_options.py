"""The options of a Celery task, as options of its jobs: queue, priority, retries, limits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

from django_ojs.contrib.celery import call_options
from django_ojs.contrib.celery.configuration import configuration
from django_ojs.enqueue_options import OptionArguments, Options, read_options
from django_ojs.not_installed import brought
from django_ojs.spec.retry_policy import MAX_ATTEMPTS_LIMIT, RetryPolicy


def options_of(task: Any) -> Options:
    """Return the options of the jobs of a task. Raises NoEquivalent."""
    route = configuration.route(task.name)
    given = {
        **route,
        "queue": task.queue or route.get("queue"),
        "priority": route.get("priority") if task.priority is None else task.priority,
        "expires": route.get("expires") if task.expires is None else task.expires,
        "time_limit": task.time_limit or configuration.task_time_limit,
        "soft_time_limit": task.soft_time_limit or configuration.task_soft_time_limit,
    }
    retries = task.most_retries
    # `retry` passes its own delay, which may be 0. The delay of a policy may not be 0.
    delay = max(0.001, task.retry_delay)
    policy = RetryPolicy(
        max_attempts=MAX_ATTEMPTS_LIMIT if retries is None else retries + 1,
        initial_interval=timedelta(seconds=delay),
        max_interval=timedelta(seconds=max(300.0, delay)),
        backoff_coefficient=1.0,
        jitter=False,
        # There is no retry after a timeout, as after Celery's hard time limit.
        non_retryable_errors=("timeout",),
    )
    options = {**call_options.read(given), "retry": policy}
    if task.rate_limit:
        options["rate_limit"] = brought("RateLimitPolicy")(
            key="type:{type}", throttle=call_options.read_rate(task.rate_limit)
        )
    return read_options(cast("OptionArguments", options))
