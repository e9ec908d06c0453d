"""Made-up jobs, their failed runs and a day of figures, as rows of the tables."""

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django_ojs.extensions.statistics.rollups import BUCKETS

Row = tuple[object, ...]

JOB_COLUMNS: Final = (
    *("id", "type", "queue", "state", "priority", "args", "meta", "options", "attempt"),
    *("max_attempts", "returned", "run", "created_at", "enqueued_at", "due_at", "started_at"),
    *("lease_until", "finished_at", "worker_id", "result", "error", "dead_letter"),
    *("discard_reason", "size_bytes"),
)
ATTEMPT_COLUMNS: Final = (
    *("job_id", "attempt", "run", "worker_id", "outcome", "started_at", "finished_at", "error"),
    "retry_delay_ms",
)
ROLLUP_COLUMNS: Final = (
    *("minute", "queue", "type", "enqueued", "completed", "failed", "discarded", "rejected"),
    *("dropped", "lost", "progress_updates", "waited", "ran"),
)

#: Queue, its share of the jobs, and the types in it.
QUEUES: Final = (
    ("default", 40, ("order.place", "order.pack", "order.ship", "stock.count")),
    ("email", 30, ("email.confirmation", "email.newsletter", "email.reminder")),
    ("payments", 12, ("payment.charge", "payment.refund")),
    ("reports", 6, ("report.daily", "report.invoice")),
    ("webhooks", 10, ("webhook.deliver",)),
    ("images", 2, ("image.resize", "image.thumbnail")),
)
_KINDS: Final = [
    (queue, kind) for queue, share, kinds in QUEUES for _ in range(share) for kind in kinds
]
ERRORS: Final = (
    ("ConnectionTimeout", "The payment gateway did not respond in 10 s."),
    ("CardDeclined", "The card was declined."),
    ("SMTPServerDisconnected", "Connection unexpectedly closed."),
    ("KeyError", "'shipping_address'"),
    ("HTTPError", "502 Server Error: Bad Gateway"),
)
_FRAMES: Final = ["File shop/jobs.py, line 41, in send", "File shop/mail.py, line 17, in deliver"]

#: The share of jobs that are not finished, and their maximum number.
LIVE_SHARE: Final = 0.02
MAX_LIVE: Final = 200_000
#: Active jobs.
_RUNNING: Final = 200
_LIVE: Final = ("available",) * 62 + ("scheduled",) * 22 + ("retryable",) * 15 + ("pending",)


def state_of(rng: random.Random, left: int, live: int, dead: float) -> tuple[str, bool]:
    """Return a job's state, and whether it is a dead letter; `left` jobs are made after it."""
    if left < min(_RUNNING, live // 10):
        return "active", False
    if left < live:
        return rng.choice(_LIVE), False
    what = rng.random()
    if what < dead:
        return "discarded", True
    if what < dead + 0.01:
        return "discarded", False
    return ("cancelled" if what < dead + 0.03 else "completed"), False


def jobs(
    first: int, last: int, total: int, *, now: datetime, dead: float, seed: int
) -> Iterator[tuple[Row, list[Row]]]:
    """Return some of `total` jobs, oldest first, each with its failed runs."""
    rng = random.Random(seed * 1_000_003 + first)
    live = min(MAX_LIVE, int(total * LIVE_SHARE))
    for number in range(first, last):
        left = total - 1 - number
        # A week of finished jobs, and an hour of those that are not.
        age = 3600 * left / max(1, live) if left < live else 3600 + 600_000 * left / total
        created = now - timedelta(seconds=age)
        yield _job(rng, number, created, now, *state_of(rng, left, live, dead))


def _job(
    rng: random.Random, number: int, created: datetime, now: datetime, state: str, dead: bool
) -> tuple[Row, list[Row]]:
    queue, kind = rng.choice(_KINDS)
    milliseconds = int(created.timestamp() * 1000)
    key = f"{milliseconds:012x}7{rng.getrandbits(12):03x}8{number:015x}"
    key = f"{key[:8]}-{key[8:12]}-{key[12:16]}-{key[16:20]}-{key[20:]}"
    args = json.dumps(
        [
            {
                "order_id": number,
                "user_id": number % 100_003,
                "email": f"c{number % 9973}@example.com",
            }
        ]
    )
    meta = json.dumps({"tenant_id": f"t{number % 50}"}) if number % 3 == 0 else "{}"
    options = '{"tags": ["vip"]}' if number % 40 == 0 else "{}"
    ended = state in ("completed", "discarded", "cancelled")
    ran = state in ("completed", "discarded", "active", "retryable")
    failures = 3 if state == "discarded" else 1 if state == "retryable" else 0
    if state == "completed" and rng.random() < 0.03:
        failures = 1
    worker = f"web-{rng.randrange(8)}"
    waits, runs = rng.expovariate(2), rng.expovariate(0.5)
    error = rng.choice(ERRORS) if failures else None
    runs_of_it: list[Row] = []
    at = created
    for attempt in range(1, failures + 1):
        began = at + timedelta(seconds=waits)
        at = began + timedelta(seconds=runs)
        delay = 5_000 * 2**attempt if attempt < 3 else None
        runs_of_it.append(
            (key, attempt, attempt, worker, "failed", began, at, _error(error), delay)
        )
        at += timedelta(milliseconds=delay or 0)
    attempts = failures + (state in ("completed", "active"))
    started: Any = runs_of_it[-1][5] if runs_of_it and state != "completed" else None
    if ran and started is None:
        started = at + timedelta(seconds=waits)
    if state == "active":
        started = created + (now - created) * rng.random()
    finished = None
    if ended:
        finished = min(now, at + timedelta(seconds=waits + runs))
    due = None
    if state in ("scheduled", "retryable"):
        due = now + timedelta(seconds=rng.random() * 7200 + 600)
    row = (
        *(key, kind, queue, state, rng.choice((0, 0, 0, 0, 10, -10)), args, meta, options),
        *(attempts, 3, 0, attempts, created),
        None if state in ("scheduled", "pending") else _enqueued(created, started, waits),
        due,
        started if ran else None,
        now + timedelta(days=1) if state == "active" else None,
        finished,
        worker if ran else None,
        f'{{"message_id": {number}}}' if state == "completed" and number % 3 == 0 else None,
        _error(error) if state in ("discarded", "retryable") else None,
        dead,
        "exhausted" if state == "discarded" else None,
        len(args) + len(meta) + len(options) + len(kind) + len(queue),
    )
    return row, runs_of_it


def _enqueued(created: datetime, started: datetime | None, waits: float) -> datetime:
    # When it became available for its latest run.
    return created if started is None else max(created, started - timedelta(seconds=waits))


def _error(error: tuple[str, str] | None) -> str | None:
    if error is None:
        return None
    return json.dumps({"type": error[0], "message": error[1], "backtrace": _FRAMES})


def rollups(now: datetime, *, jobs_a_day: int, seed: int) -> Iterator[Row]:
    """Return the figures of each minute of the last day."""
    rng = random.Random(seed)
    start = now.astimezone(UTC).replace(second=0, microsecond=0) - timedelta(days=1)
    for minute in range(24 * 60):
        moment = start + timedelta(minutes=minute)
        busy = 8 <= moment.hour < 20
        for queue, share, kinds in QUEUES:
            for kind in kinds:
                mean = jobs_a_day * share / 100 / len(kinds) / 1440
                came = int(rng.gauss(mean, mean / 5 + 1) * (1.3 if busy else 0.7))
                if came <= 0:
                    continue
                failed = int(came * 0.03 * rng.random())
                spread = json.dumps(_spread(came, 9)), json.dumps(_spread(came, 11))
                yield (moment, queue, kind, came, came, failed, failed // 3, 0, 0, 0, 0, *spread)


def _spread(number: int, middle: int) -> list[int]:
    shares = [0.05, 0.1, 0.2, 0.3, 0.2, 0.1, 0.05]
    counted = [0] * BUCKETS
    for index, share in enumerate(shares):
        counted[middle - 3 + index] = int(number * share)
    counted[middle] += number - sum(counted)
    return counted
