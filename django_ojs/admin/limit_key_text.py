"""Limit keys as a user may see them: their parts that are arguments of jobs are payload."""

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest

from django_ojs.admin import payload_permission
from django_ojs.handlers import parameters_of
from django_ojs.operations.jobs.redaction import (
    redacted_args,
    redacted_key,
    with_redacted_key,
)


def shown(request: HttpRequest, key: str) -> str:
    """Return a key, with the parts hidden that the user may not see."""
    return redacted_key(key, may_see=payload_permission.may_see(request))


def policy(request: HttpRequest, limits: Any) -> Any:
    """Return the `rate_limit` of a job, with its key as the user may see it."""
    return with_redacted_key(limits, may_see=payload_permission.may_see(request))


def in_document(job: Any) -> Any:
    """Return the JSON of a job as it is sent, with its limit key and its arguments as users with
    the permission to see payloads may see them. Its members are not redacted yet."""
    if not isinstance(job, Mapping):
        return job
    # A client may send `rate_limit` in `options` or at the top level.
    shown = {**job, "options": in_document(job["options"])} if "options" in job else {**job}
    if "rate_limit" in shown:
        shown["rate_limit"] = with_redacted_key(shown["rate_limit"], may_see=True)
    if "args" in shown:
        names = parameters_of(str(shown.get("type")), shown["args"])
        shown["args"] = redacted_args(shown["args"], names)
    return shown
