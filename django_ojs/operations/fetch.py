"""FETCH (ojs-core §7.2): claim the best available jobs for a worker."""

import logging
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from datetime import timedelta
from functools import partial
from typing import Final

from django.db import DatabaseError, InterfaceError

from django_ojs import hooks
from django_ojs.conf import settings
from django_ojs.models import Job
from django_ojs.models.worker import Directive
from django_ojs.operations import fail, worker_activity
from django_ojs.operations.due_jobs import DueCheck
from django_ojs.operations.worker_activity import KnownWorker, Principal
from django_ojs.spec.envelope import check_queue
from django_ojs.spec.errors import Conflict, InvalidRequest, JobNotFound, OJSError
from django_ojs.spec.failure import Failure
from django_ojs.spec.field_checks import check_text
from django_ojs.spec.hold import FIRST_HELD
from django_ojs.spec.isolation import ISOLATED_AFTER, Isolation
from django_ojs.spec.scheduling import STRICT_ORDER, Pool, QueueOrder
from django_ojs.spec.states import State
from django_ojs.storage import (
    claim_floors,
    database,
    holds,
    queue_configs,
    queue_turns,
    raw_queries,
    transitions,
)
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.dialects.base import ALL_QUEUES
from django_ojs.storage.dialects.rows import ANY_SIZE, ClaimRequest
from django_ojs.storage.next_starts import next_starts

logger = logging.getLogger("django_ojs")

#: How often a claim is tried while other processes change the rules of its queue.
TRIES: Final = 3

#: A claim of more jobs would hold row locks for too long.
MAX_COUNT = 1000

#: After this many queues without a job, one statement asks which of the others have one, if there
#: are at least as many of them. It costs less than two claims.
EMPTY_QUEUES: Final = 3
#: It names at most this many queues; more of them are asked for by further statements.
_NAMED_AT_ONCE: Final = 100

#: The type of the error of a job for which an extension failed when it was claimed.
EXTENSION_FAILED: Final = "extension_failed"

_AVAILABLE: Final = State.AVAILABLE.value

#: The condition that a queue has an available job that is not held. It asks for the minimum and not
#: for EXISTS, so that the database must read the end of the claim index.
_HAS_JOB: Final = (
    f"(SELECT min(hold) FROM ojs_job WHERE queue = {{}} AND state = '{_AVAILABLE}') < {FIRST_HELD}"
)

#: The order for a worker that names no other.
FIRST_QUEUE_FIRST = queue_turns.Turns(STRICT_ORDER)


def fetch(
    queues: Sequence[str],
    *,
    count: int = 1,
    worker_id: str | None = None,
    visibility_timeout: timedelta | None = None,
    due: bool = True,
    default_timeout: timedelta | None = None,
    isolation: Isolation = Isolation.ANY,
    principal: Principal = worker_activity.PROJECT,
    max_bytes: int | None = None,
    turns: queue_turns.Turns = FIRST_QUEUE_FIRST,
    pool: str | None = "",
    registered: bool = False,
) -> list[Claimed]:
    """Claim up to `count` jobs from `queues`, the first queue first, or by `turns`.

    In a queue, the job with the highest priority goes first, then the oldest, unless a rule of the
    queue orders them. Their sizes add up to `max_bytes` at most, or to MAX_FETCH_BYTES, except that
    the first job may be larger.

    `pool` is the pool of the worker. Without one, a queue that is exclusive to a pool returns no
    jobs. None takes the jobs of every pool, which is for tests.

    A paused queue returns no jobs, and a worker with the directive quiet gets none. Before the
    claim, due jobs are promoted, expired ones are discarded, and extensions do their due steps; a
    worker whose maintenance does this passes `due=False`. With `registered`, the worker gets jobs
    only while its row exists. The row is removed when the worker counts as dead, and the rescue
    would not see jobs that are claimed after it.

    The jobs are reserved for `visibility_timeout`, or else for their own visibility timeout, or
    else for `default_timeout`, by default VISIBILITY_TIMEOUT. Raises PermissionDenied for a
    `worker_id` that the principal may not use.
    """
    if not registered:
        # A worker of the project has checked its arguments already.
        _check(queues, count, worker_id, visibility_timeout)
    if due and not _may_claim(queues, _worker(worker_id, principal)):
        return []
    lease = visibility_timeout or default_timeout or settings().visibility_timeout
    lease_ms = max(1, int(lease / timedelta(milliseconds=1)))

    most = settings().max_fetch_bytes if max_bytes is None else max_bytes
    most = min(most, ANY_SIZE)

    searched = _open_to(pool, queues)
    jobs: list[Claimed] = []
    left = most
    full = dict[int, set[str]]()
    empty, without_jobs = 0, frozenset[str]()
    with closing(turns.asks(searched, count)) as asks:
        for number, ask in enumerate(asks):
            if empty == EMPTY_QUEUES and len(searched) - number >= EMPTY_QUEUES:
                without_jobs = _without_jobs(searched)
                empty += 1  # It is asked once.
            if ask.queue in without_jobs:
                next_starts.unread.discard(ask.queue)
                continue
            request = ClaimRequest(
                queue=ask.queue,
                limit=ask.wanted,
                worker_id=worker_id,
                lease_ms=lease_ms,
                own_lease=visibility_timeout is None,
                isolation=isolation,
                max_bytes=left,
                at_least_one=left == most,
                registered=registered,
            )
            try:
                claimed = _claim(request, searched, full)
            except Exception as error:
                if not jobs or not _keeps_claims(error, registered):
                    raise
                break
            ask.found = len(claimed)
            if not claimed:
                empty += 1
            jobs += claimed
            left -= sum(job.size for job in claimed)
            if may_be_cut(left, most):
                # A smaller job of the next queue must not overtake one that did not fit.
                break
    try:
        for mark, name, hook in hooks.registry.fetched:
            if marked := [job for job in jobs if job.marks & mark]:
                jobs = _give(name, hook, marked, jobs)
    except Exception:
        give_back(jobs)
        raise
    return jobs


def _give(
    name: str,
    hook: Callable[[Sequence[Claimed]], object],
    marked: list[Claimed],
    jobs: list[Claimed],
) -> list[Claimed]:
    """Give claimed jobs to a hook `fetched`. Return the jobs without those for which it raises.

    The latter wait, so that they are not the first of the next claim.
    """
    try:
        hook(marked)
        return jobs
    except Exception as error:
        _check_of_hook(error)
    for job in marked:
        try:
            hook([job])
        except Exception as error:
            _check_of_hook(error)
            hooks.failed(name, "failed for a claimed job", error)
            failure = Failure(
                type=EXTENSION_FAILED, message=f"The extension {name} failed for the job."
            )
            claim = transitions.Claim(worker_id=job.worker_id, run=job.run)
            with suppress(Conflict, JobNotFound):
                fail.postpone(job.id, failure, delay=transitions.SET_ASIDE, claim=claim)
            jobs = [each for each in jobs if each is not job]
    return jobs


def _check_of_hook(error: Exception) -> None:
    """Raise an error that is not the hook's fault, or has broken the caller's transaction."""
    is_broken = isinstance(error, DatabaseError) and database.connection().in_atomic_block
    if is_broken or isinstance(error, MemoryError) or database.may_pass(error):
        raise error


def _claim(
    request: ClaimRequest, queues: Sequence[str], full: dict[int, set[str]]
) -> list[Claimed]:
    """Claim jobs of one of these queues. If it has rules that were not known, try again.

    See `ruled_claims.claim` for `full`.
    """
    of_jobs = 0
    for _ in range(TRIES):
        rules = queue_configs.remembered_rules(request.queue) | of_jobs
        try:
            if rules:
                from django_ojs.storage import ruled_claims

                return ruled_claims.claim(request, rules, queues, full)
            return database.retried(partial(transitions.claim, request))
        except transitions.RulesUnknown:
            of_jobs = holds.learn_rules(request.queue)
        except Exception as error:
            if not rules or isinstance(error, OJSError):
                raise
            _check_of_hook(error)
            # The error has undone the claim. Jobs of other queues can still be claimed.
            names = ", ".join(name for name, _ in hooks.registry.named_rules(rules))
            hooks.failed(names, f"failed in a claim of the queue {request.queue}", error)
            break
    return []


def _keeps_claims(error: Exception, registered: bool) -> bool:
    """Say whether the jobs of earlier queues are returned although the claim of this one failed.

    Their claims are committed, and the next FETCH meets the error again. In an open transaction of
    the caller they are not. A worker of the project gets the error of an outage, because it then
    gives back all that it may have claimed (see `rescue.give_back_unknown`).
    """
    if database.connection().in_atomic_block or (registered and database.is_unavailable(error)):
        return False
    logger.error(
        "Jobs of one queue could not be claimed; those of others were.",
        exc_info=database.without_values(error),
    )
    return True


def _open_to(pool: str | None, queues: Sequence[str]) -> list[str]:
    """Return the queues, each once, without those that are exclusive to another pool."""
    kept = settings().pool_of_queue if pool is not None else {}
    return [name for name in dict.fromkeys(queues) if kept.get(name, pool) == pool]


def give_back(jobs: Sequence[Claimed]) -> None:
    """Return to their queues claimed jobs that the caller will not get."""
    for job in jobs:
        # If the caller's transaction is broken, its rollback returns them.
        with suppress(DatabaseError, InterfaceError, Conflict, JobNotFound):
            fail.requeue(job.id, claim=transitions.Claim(worker_id=job.worker_id, run=job.run))


def may_find(queues: Sequence[str]) -> bool:
    """Whether a job of these queues is available and not held, or is held and may be opened.

    If there is none, FETCH returns none. This query costs a fifth of such a FETCH. It costs more
    while a transaction keeps an old snapshot open, because it has no floor (see
    `storage.claim_floors`).
    """
    conditions = [*[_HAS_JOB.format("%s")] * len(queues), *_may_open()]
    # Without queues and rules there is no condition, and no job.
    return bool(conditions) and raw_queries.holds(" OR ".join(conditions), queues)


def _without_jobs(queues: Sequence[str]) -> frozenset[str]:
    """Return the queues from which a claim would return nothing.

    Empty if held jobs may be opened, which may be in any queue, or while claims start from a floor
    (see `storage.claim_floors`), without which this query takes long.
    """
    if claim_floors.floors.in_use:
        return frozenset()
    if may_find(()):
        return frozenset()  # Held jobs, of whichever queue, may be opened.
    link = database.connection()
    found: set[str] = set()
    for first in range(0, len(queues), _NAMED_AT_ONCE):
        part = queues[first : first + _NAMED_AT_ONCE]
        names = " UNION ALL ".join(["SELECT %s AS name", *["SELECT %s"] * (len(part) - 1)])
        statement = f"SELECT name FROM ({names}) AS q WHERE {_HAS_JOB.format('q.name')}"
        found.update(name for (name,) in database.dialect_of(link).rows(link, statement, part))
    return frozenset(queues) - found


def _may_open() -> list[str]:
    """Return the conditions of extensions that held jobs may be opened."""
    found = [
        hooks.contained(name, "failed to say whether jobs may be opened", rule.may_open, None)
        for name, rule in hooks.registry.named_rules()
    ]
    return [condition for condition in found if condition]


def isolated_waiting(queues: Sequence[str] | None, *, limit: int, pool: str = "") -> int:
    """Return how many available jobs must run alone, in the queues that are not paused.

    Jobs that are held are left out, and so are queues that are exclusive to another pool. None
    means all other queues. If there are more than `limit`, return `limit`.
    """
    kept = [name for name, owner in settings().pool_of_queue.items() if owner != pool]
    if queues is None:
        listed = f"AND queue NOT IN ({', '.join(['%s'] * len(kept))})" if kept else ""
        queues = kept
    else:
        queues = [name for name in queues if name not in kept]
        if not queues:
            return 0
        listed = f"AND queue IN ({', '.join(['%s'] * len(queues))})"
    return raw_queries.count(
        Job,
        f"state = '{State.AVAILABLE.value}' AND lost_with_others >= {ISOLATED_AFTER} "
        f"AND hold < {FIRST_HELD} {listed} "
        "AND NOT EXISTS (SELECT 1 FROM ojs_queue AS q WHERE q.name IN (ojs_job.queue, %s) "
        "AND q.paused_at IS NOT NULL)",
        [*queues, ALL_QUEUES],
        limit=limit,
    )


def may_be_cut(left: int, most: int) -> bool:
    """Whether claims with `left` of `most` bytes left may have left out a job for its size."""
    return left < min(most / 2, settings().max_envelope_bytes)


def fetch_remotely(
    queues: Sequence[str],
    *,
    count: int = 1,
    worker_id: str | None = None,
    visibility_timeout: timedelta | None = None,
    principal: Principal = worker_activity.PROJECT,
    order: QueueOrder = STRICT_ORDER,
    pool: str | None = None,
) -> list[Claimed]:
    """Claim jobs for a worker over HTTP, and record that the worker is alive.

    The default length of a lease is HTTP_VISIBILITY_TIMEOUT. `pool` is the pool that the worker
    names: None keeps the one that it named before, and an empty string means no pool. `order`
    applies only without a pool, because a pool has an order of its own. Raises InvalidRequest for
    an unknown pool, and for queues that it does not have.
    """
    _check(queues, count, worker_id, visibility_timeout)
    worker = _worker(worker_id, principal)
    found = _pool_of(worker_id, pool, queues, principal, worker)
    if found is not None:
        order = found.order
    turns = FIRST_QUEUE_FIRST
    if not order.is_strict:
        # Turns are remembered for each set of queues, so that a queue that only some requests name
        # gets its turns in those requests.
        key = found and found.name, frozenset(queues)
        turns = queue_turns.remembered.of(order, key)
    jobs: list[Claimed] = []
    if _may_claim(queues, worker):
        jobs = fetch(
            queues,
            count=count,
            worker_id=worker_id,
            visibility_timeout=visibility_timeout,
            due=False,
            default_timeout=settings().http_visibility_timeout,
            turns=turns,
            pool="" if found is None else found.name,
        )
    if worker_id is not None:
        try:
            worker_activity.after_fetch(worker_id, queues, jobs, principal, worker)
        except Exception:
            give_back(jobs)
            raise
    return jobs


def _worker(worker_id: str | None, principal: Principal) -> KnownWorker | None:
    """Return the worker of a FETCH, and with it whether jobs are due or expired.

    Raises PermissionDenied if the principal may not write it.
    """
    worker = None if worker_id is None else worker_activity.find(worker_id, DueCheck().conditions)
    if worker is not None:
        principal.check(worker.owner)
    return worker


def _may_claim(queues: Sequence[str], worker: KnownWorker | None) -> bool:
    """Do what is due before a claim. Return False for a quiet worker, which claims nothing."""
    if worker is not None and worker.directive != Directive.RUNNING:
        return False
    check = DueCheck()
    check.promote(queues, () if worker is None else worker.which_hold)
    check.expire()
    hooks.before_fetch()
    return True


def _pool_of(
    worker_id: str | None,
    pool: str | None,
    queues: Sequence[str],
    principal: Principal,
    worker: KnownWorker | None,
) -> Pool | None:
    """Return the pool of a worker that fetches these queues. Raises InvalidRequest."""
    if pool:
        check_pool(pool)
        if worker_id is None:
            raise InvalidRequest.of("worker_id", "is required with a pool, which the worker joins")
    if worker_id is None or not (settings().pools or pool is not None):
        return None
    before = "" if worker is None else worker.pool
    # A worker may have named a pool that the settings no longer have.
    found = settings().pool(before if pool is None else pool)
    if found is not None and not all(map(found.takes, queues)):
        raise InvalidRequest.of(
            "queues",
            f"must be queues of the pool {found.name}, to which this worker belongs",
            hint="OJS['POOLS'] of the server names the queues of a pool.",
        )
    if pool is not None and pool != before:
        worker_activity.join_pool(worker_id, pool, queues, principal, is_known=worker is not None)
    return found


def check_pool(name: str) -> None:
    """Raise InvalidRequest unless there is a pool with this name."""
    if settings().pool(name) is None:
        raise InvalidRequest.of(
            "pool", "is not a pool of this server.", hint="OJS['POOLS'] of the server names them."
        )


def _check(
    queues: Sequence[str], count: int, worker_id: str | None, visibility_timeout: timedelta | None
) -> None:
    if isinstance(queues, str) or not queues:
        raise InvalidRequest(
            "queues must be a list of at least one queue name.", details={"field": "queues"}
        )
    for queue in queues:
        check_queue(queue, settings().limits, field="queues")
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_COUNT:
        raise InvalidRequest(
            f"count must be an integer from 1 to {MAX_COUNT}.", details={"field": "count"}
        )
    check_worker_id(worker_id)
    if visibility_timeout is not None and visibility_timeout <= timedelta(0):
        raise InvalidRequest(
            "visibility_timeout_ms must be longer than zero.",
            details={"field": "visibility_timeout_ms"},
        )


def check_worker_id(worker_id: str | None) -> None:
    """Raise InvalidRequest unless this can be a worker's id: 1 to 255 characters, no NUL."""
    if worker_id is not None:
        check_text(worker_id, "worker_id")
