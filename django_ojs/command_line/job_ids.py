"""Jobs can be named by the beginning of their ids, as commits can in git."""

import re
from typing import Final
from uuid import UUID

from django.core.management.base import CommandError

from django_ojs.command_line.subcommand import FAILED, Options, usage_error
from django_ojs.models import Job
from django_ojs.spec.errors import OJSError
from django_ojs.spec.ids import parse_id

#: Fewer characters would name nearly every job: ids begin with their time.
_SHORTEST: Final = 4
#: How many candidates are listed.
_LISTED: Final = 10

_BEGINNING: Final = re.compile(r"[0-9a-f-]+").fullmatch
#: No job type begins with a digit, so a word of a search that begins with one is no type.
_BEGINNING_IN_SEARCH: Final = re.compile(r"[0-9](-?[0-9a-f]){0,30}-?").fullmatch


def whole_id(text: str) -> UUID:
    """Return the id of the job whose id begins with this text.

    A whole id is returned even if no job has it. Raises CommandError.
    """
    try:
        return parse_id(text)
    except OJSError as error:
        digits = text.replace("-", "")
        if not _BEGINNING(text) or len(digits) >= 32 or not _is_beginning(text, digits):
            raise usage_error(error.message) from None
    if len(digits) < _SHORTEST:
        raise usage_error(f"{text} is too short: give at least {_SHORTEST} characters of the id.")
    # This reads a range of the primary key. A comparison of texts would read all ids.
    first, last = (UUID(digits.ljust(32, end)) for end in "0f")
    jobs = Job.primary.filter(pk__gte=first, pk__lte=last).only("state", "type", "queue")
    found = list(jobs.order_by("pk")[: _LISTED + 1])
    if not found:
        raise CommandError(f"There is no job whose id begins with {text}.", returncode=FAILED)
    if len(found) == 1:
        return found[0].pk
    listed = [f"  {job.pk}  {job.state}  {job.type}  {job.queue}" for job in found[:_LISTED]]
    more = ["  …"] if len(found) > _LISTED else []
    lines = [f"The ids of several jobs begin with {text}:", *listed, *more]
    raise CommandError("\n".join(lines), returncode=FAILED)


def _is_beginning(text: str, digits: str) -> bool:
    """Whether the hyphens, if there are any, are where an id has them."""
    return text == digits or str(UUID(digits.ljust(32, "0"))).startswith(text)


def with_whole_ids(options: Options) -> Options:
    """Return the arguments of a search in which each beginning of an id is the whole id."""
    words = [
        str(whole_id(word)) if _BEGINNING_IN_SEARCH(word) else word for word in options["words"]
    ]
    return {**options, "words": words}
