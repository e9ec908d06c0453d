"""What follows a task: the rest of its chain, and the tasks of `link`.

A job has them in its `meta`, each with the id of the job that it will be: when a worker dies after
it has enqueued that job, and the task runs again, the id is taken, and there is no second job.
They are signed, with the id of the job, because a producer over HTTP chooses `meta` as well, and a
worker must not enqueue for it what its API key does not allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol
from uuid import UUID

from django.core import signing

from django_ojs.spec.errors import InvalidMetadata
from django_ojs.spec.json import JSON

#: The member of `meta` with the values of this module.
META: Final = "celery"


class HasMeta(Protocol):
    """A job, as a worker has claimed it."""

    @property
    def id(self) -> UUID: ...

    @property
    def meta(self) -> dict[str, JSON]: ...


def meta_of(
    job_id: UUID | str,
    then: Sequence[Sequence[dict[str, Any]]],
    *,
    headers: dict[str, Any] | None,
    positional: int | None,
    takes_result: bool = False,
    retries: int = 0,
) -> dict[str, Any] | None:
    """Return the `meta` of a job.

    It has the chains of signatures that follow it, Celery's headers, how many arguments were given
    by position when the others were given by name, whether the first argument is the result of
    the step before it in its workflow, and how often its task was retried by other jobs.
    """
    found: dict[str, Any] = {}
    if then:
        found["then"] = signing.dumps(then, salt=_salt(job_id), compress=True)
    if headers:
        found["headers"] = headers
    if positional is not None:
        found["positional"] = positional
    if takes_result:
        found["takes_result"] = True
    if retries:
        found["retries"] = retries
    return {META: found} if found else None


def headers_of(job: HasMeta) -> dict[str, Any]:
    """Return the headers that `apply_async` was given."""
    headers = _member(job.meta).get("headers")
    return headers if isinstance(headers, dict) else {}


def positional_of(meta: dict[str, JSON], default: int) -> int:
    """Return how many of the arguments were given by position."""
    number = _member(meta).get("positional")
    return number if type(number) is int and 0 <= number <= default else default


def takes_result(meta: dict[str, JSON]) -> bool:
    """Whether the first argument is the result of the step before it in its workflow."""
    return _member(meta).get("takes_result") is True


def retries_of(meta: dict[str, JSON]) -> int:
    """Return how often the task was retried before this job was enqueued."""
    number = _member(meta).get("retries")
    return number if type(number) is int and number > 0 else 0


def chains_of(job: HasMeta) -> list[list[dict[str, Any]]]:
    """Return the chains that follow a job. Raises InvalidMetadata for a wrong signature."""
    text = _member(job.meta).get("then")
    if text is None:
        return []
    try:
        chains: list[list[dict[str, Any]]] = signing.loads(str(text), salt=_salt(job.id))
    except signing.BadSignature:
        raise InvalidMetadata.of(
            f"meta.{META}.then", "was not signed for this job with the SECRET_KEY of this site"
        ) from None
    return chains


def _member(meta: dict[str, JSON]) -> dict[str, Any]:
    member = meta.get(META)
    return member if isinstance(member, dict) else {}


def _salt(job_id: UUID | str) -> str:
    return f"django_ojs.celery:{job_id}"
