"""The terms of other task queues, each with what it is called here.

The page *Coming from another queue* is made of these rows, and the error about an unknown option or
attribute answers with the row that names it.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the page, in its Markdown.

    `names` are the unknown options and attributes whose error shows this row. Each begins with the
    place where people look for it: `option`, `handler`, `enqueued`, `context` or `ojs`.
    """

    queue: str
    there: str
    here: str
    names: str = ""


CELERY, DJANGO_Q2, PROCRASTINATE = "Celery", "django-q2", "procrastinate"
TASKS, DRAMATIQ, RQ = "django-tasks-db", "Dramatiq", "RQ"

ROWS: Final = (
    Row(CELERY, "`@shared_task`", '`@ojs.job("mail.send")`', "ojs.shared_task ojs.task ojs.Celery"),
    Row(CELERY, "`f.delay(x)`", "`f.enqueue(x)`", "handler.delay handler.delay_on_commit"),
    Row(
        CELERY,
        "`f.apply_async((x,), queue=…)`",
        "`f.options(queue=…).enqueue(x)`",
        "handler.apply_async handler.apply_async_on_commit handler.set",
    ),
    Row(
        CELERY,
        "`countdown=60`",
        "`scheduled_at=timedelta(seconds=60)`",
        "option.countdown option.delay",
    ),
    Row(CELERY, "`eta=…`", "`scheduled_at=…`", "option.eta"),
    Row(CELERY, "`expires=…`", "`expires_at=…`", "option.expires"),
    Row(
        CELERY,
        "`max_retries=3`",
        "`retry=ojs.RetryPolicy(max_attempts=4)`, which counts the first run",
        "option.max_retries",
    ),
    Row(
        CELERY,
        "`autoretry_for=…`, `retry_backoff`",
        "`retry=ojs.RetryPolicy(…)`: any exception is retried",
        "option.autoretry_for option.retry_backoff option.default_retry_delay",
    ),
    Row(
        CELERY,
        "`self.retry(countdown=60)`",
        '`raise ojs.Retry("busy", delay=60)`',
        "context.retry handler.retry",
    ),
    Row(CELERY, "`bind=True`", "a first parameter with `ctx: ojs.JobContext`", "option.bind"),
    Row(CELERY, "`self.request`", "`ctx.job`", "context.request handler.request_stack"),
    Row(CELERY, "`self.update_state(…)`", "`ctx.progress(…)`", "context.update_state"),
    Row(
        CELERY,
        "`time_limit`, `soft_time_limit`",
        "`timeout`, in seconds",
        "option.time_limit option.soft_time_limit",
    ),
    Row(CELERY, '`rate_limit="10/m"`', "`rate_limit=ojs.RateLimitPolicy(…)`, over all workers"),
    Row(
        CELERY,
        "`acks_late`",
        "nothing: a job is acknowledged when it has ended",
        "option.acks_late option.reject_on_worker_lost",
    ),
    Row(
        CELERY,
        "`result.get()`, `AsyncResult(id)`",
        "`ojs.get_job(id).result`",
        "enqueued.get enqueued.result enqueued.ready enqueued.successful ojs.AsyncResult",
    ),
    Row(CELERY, "`chord`", "`ojs.batch(…, on_success=…)`", "ojs.chord"),
    Row(CELERY, "`chain`, `group`", "`ojs.chain`, `ojs.group`"),
    Row(
        CELERY,
        "`f.si(x)`, `f.signature((x,))`",
        "`f.s(x)`: results are not passed on as arguments",
        "handler.si handler.signature handler.subtask ojs.signature",
    ),
    Row(
        CELERY,
        "`beat`, `crontab()`",
        '`@ojs.cron("30 7 * * *")`',
        "ojs.beat ojs.crontab ojs.schedule",
    ),
    Row(CELERY, "`result.revoke()`", "`ojs.cancel(id)`", "enqueued.revoke ojs.revoke"),
    Row(CELERY, "`celery worker -Q a,b -c 8`", "`manage.py ojs_worker --queues a,b --threads 8`"),
    Row(
        CELERY,
        "`task_always_eager`, `f.apply()`",
        "the inline mode of [tests](../how-to/test-modes.md)",
        "handler.apply",
    ),
    Row(CELERY, "Flower", "the admin, `manage.py ojs workers`"),
    Row(
        DJANGO_Q2,
        "`async_task(f, x)`",
        '`f.enqueue(x)`, after `@ojs.job("mail.send")`',
        "ojs.async_task",
    ),
    Row(DJANGO_Q2, "`q_options`", "`f.options(…)`", "option.q_options"),
    Row(DJANGO_Q2, "`schedule(…, next_run=…)`", "`scheduled_at=…`", "option.next_run"),
    Row(DJANGO_Q2, "`schedule(…, cron=…)`", "`@ojs.cron(…)`", "option.cron"),
    Row(
        DJANGO_Q2,
        "`max_attempts`",
        "`retry=ojs.RetryPolicy(max_attempts=…)`",
        "option.max_attempts",
    ),
    Row(DJANGO_Q2, "`result(id)`, `fetch(id)`", "`ojs.get_job(id).result`", "ojs.result ojs.fetch"),
    Row(
        DJANGO_Q2,
        "`async_chain`, `async_iter`",
        "`ojs.chain`, `ojs.batch`",
        "ojs.async_chain ojs.async_iter",
    ),
    Row(DJANGO_Q2, "`Failure`", "dead letters in the admin"),
    Row(DJANGO_Q2, "`manage.py qcluster`", "`manage.py ojs_worker`"),
    Row(DJANGO_Q2, "`sync`", "the inline mode", "option.sync"),
    Row(PROCRASTINATE, '`@app.task(queue="mail")`', '`@ojs.job("mail.send", queue="mail")`'),
    Row(
        PROCRASTINATE,
        "`f.defer(x=x)`",
        "`f.enqueue(x)`, or `f.enqueue(x=x)`",
        "handler.defer handler.defer_async",
    ),
    Row(
        PROCRASTINATE,
        "`f.configure(…)`",
        "`f.options(…)`",
        "handler.configure",
    ),
    Row(
        PROCRASTINATE,
        "`schedule_in`, `schedule_at`",
        "`scheduled_at`",
        "option.schedule_in option.schedule_at",
    ),
    Row(PROCRASTINATE, "`retry=3`", "`retry=ojs.RetryPolicy(max_attempts=…)`"),
    Row(PROCRASTINATE, "`queueing_lock`", "`unique=ojs.UniquePolicy(…)`", "option.queueing_lock"),
    Row(
        PROCRASTINATE,
        "`lock`",
        "`rate_limit=ojs.RateLimitPolicy(key=…, concurrency=1)`",
        "option.lock",
    ),
    Row(PROCRASTINATE, "`@app.periodic(cron=…)`", "`@ojs.cron(…)`", "ojs.periodic"),
    Row(PROCRASTINATE, "`cancel_job_by_id`", "`ojs.cancel(id)`"),
    Row(
        PROCRASTINATE,
        "`manage.py procrastinate worker -q a,b -c 8`",
        "`manage.py ojs_worker --queues a,b --threads 8`",
    ),
    Row(PROCRASTINATE, "`InMemoryConnector`", "the fake mode"),
    Row(TASKS, "`f.using(…)`", "`f.options(…)` of a handler", "handler.using"),
    Row(TASKS, "`queue_name`", "`queue`", "option.queue_name"),
    Row(TASKS, "`run_after`", "`scheduled_at`", "option.run_after"),
    Row(TASKS, "`manage.py db_worker`", "`manage.py ojs_worker`"),
    Row(TASKS, "`manage.py prune_db_task_results`", "nothing: workers delete ended jobs"),
    Row(TASKS, "`on_commit` around `enqueue`", "nothing"),
    Row(
        DRAMATIQ,
        '`@actor(queue_name="mail")`',
        '`@ojs.job("mail.send", queue="mail")`',
        "ojs.actor",
    ),
    Row(DRAMATIQ, "`f.send(x)`", "`f.enqueue(x)`", "handler.send"),
    Row(
        DRAMATIQ,
        "`f.send_with_options(delay=60000)`",
        "`f.options(scheduled_at=timedelta(seconds=60)).enqueue(x)`",
        "handler.send_with_options",
    ),
    Row(DRAMATIQ, "`max_age`", "`expires_at`", "option.max_age"),
    Row(
        DRAMATIQ,
        "`min_backoff`, `max_backoff`",
        "`retry=ojs.RetryPolicy(initial_interval=…, max_interval=…)`",
        "option.min_backoff option.max_backoff",
    ),
    Row(DRAMATIQ, "`raise Retry(delay=…)`", '`raise ojs.Retry("busy", delay=…)`'),
    Row(
        DRAMATIQ,
        "`ConcurrentRateLimiter`, `WindowRateLimiter`",
        "`rate_limit=ojs.RateLimitPolicy(…)`",
    ),
    Row(DRAMATIQ, "`pipeline`", "`ojs.chain`", "ojs.pipeline"),
    Row(DRAMATIQ, "`message.get_result()`", "`ojs.get_job(id).result`", "enqueued.get_result"),
    Row(DRAMATIQ, "`dramatiq -Q a b -t 8`", "`manage.py ojs_worker --queues a,b --threads 8`"),
    Row(DRAMATIQ, "`StubBroker`", "the fixture `ojs`, `ojs.drain()`"),
    Row(RQ, "`queue.enqueue(f, x)`", '`f.enqueue(x)`, after `@ojs.job("mail.send", queue="mail")`'),
    Row(
        RQ,
        "`enqueue_in`, `enqueue_at`",
        "`f.options(scheduled_at=…).enqueue(x)`",
        "handler.enqueue_in handler.enqueue_at ojs.enqueue_in ojs.enqueue_at",
    ),
    Row(RQ, "`retry=Retry(max=3)`", "`retry=ojs.RetryPolicy(max_attempts=4)`"),
    Row(RQ, "`job_timeout`", "`timeout`", "option.job_timeout"),
    Row(RQ, "`ttl`", "`expires_at`", "option.ttl"),
    Row(RQ, "`job_id`", "`id`, or `unique=ojs.UniquePolicy(…)`", "option.job_id"),
    Row(RQ, "`depends_on`", "`ojs.chain`, `ojs.graph`", "option.depends_on"),
    Row(
        RQ,
        "`job.return_value()`",
        "`ojs.get_job(id).result`",
        "enqueued.return_value enqueued.get_status",
    ),
    Row(RQ, "`job.cancel()`", "`ojs.cancel(id)`", "enqueued.cancel"),
    Row(RQ, "`FailedJobRegistry`", "dead letters in the admin"),
    Row(
        RQ,
        "`rq worker a b`, `rq cron`",
        "`manage.py ojs_worker --queues a,b`, which runs the schedules too",
    ),
    Row(RQ, "`is_async=False`", "the inline mode", "option.is_async"),
)


def called_here(name: str, on: str) -> str | None:
    """Return a sentence on what an attribute or an option is called here, or None."""
    for row in ROWS:
        if f"{on}.{name}" in row.names.split():
            here = row.here.partition("](")[0].replace("[", "")
            return f"{row.there} of {row.queue} is here: {here}.".replace("`", "")
    return None


def no_attribute(name: str, on: str, what: str) -> AttributeError:
    """Return the error about an attribute that does not exist."""
    found = called_here(name, on)
    return AttributeError(f"{what} has no attribute {name!r}." + (f" {found}" if found else ""))
