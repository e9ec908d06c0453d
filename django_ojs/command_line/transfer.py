"""`export` and `import`: jobs as JSON lines, each the envelope of a job.

An import enqueues the jobs as PUSH does: their ids stay, and their attempts start again.
"""

import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final
from uuid import UUID

from django.core.management.base import CommandError

from django_ojs import hooks
from django_ojs.command_line.console import Console
from django_ojs.command_line.searching import add_search, filter_of, with_search_help
from django_ojs.command_line.subcommand import FAILED, OK, USAGE, Options, Subcommand
from django_ojs.conf import settings
from django_ojs.formatting import grouped, number_of
from django_ojs.models import Job
from django_ojs.operations.access import operator
from django_ojs.operations.enqueue.result import EnqueuedJob, Outcome
from django_ojs.operations.jobs.export import stream
from django_ojs.operations.push import PushOptions, push_batch
from django_ojs.spec import envelope, json
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.errors import DuplicateJob, InvalidRequest, OJSError
from django_ojs.spec.states import TERMINAL, State
from django_ojs.storage import database

#: The most lines that are stored in one transaction.
BATCH: Final = 200
#: How many jobs the extensions are asked about at once.
EXPORTED: Final = 50
#: The member of a line that has what extensions store about a job.
EXTENSIONS: Final = "ojs_extensions"
#: Jobs between two reports of the progress.
PROGRESS: Final = 1_000
#: Rejected lines that the JSON result names; all are written to stderr.
MAX_ERRORS: Final = 100
#: Room for the names and times of a line, beside the envelope and the result.
_MORE_BYTES: Final = 1024 * 1024

_RUNS_AGAIN: Final = TERMINAL | {State.ACTIVE}


def _export(console: Console, options: Options) -> int:
    which = filter_of(options)
    number = offloaded = steps = 0
    entry = operator.acted("jobs.exported", object_type="job")
    try:
        found = stream(which)
        while jobs := list(islice(found, EXPORTED)):
            more = hooks.exported(jobs)
            for job in jobs:
                number += 1
                own = {EXTENSIONS: more[job.pk]} if job.pk in more else {}
                console.json(envelope.render(job) | own)
                offloaded += "offloaded" in job.options
                steps += job.workflow_id is not None
                if number % PROGRESS == 0:
                    console.progress(number_of(number, "job"))
    finally:
        # The audit entry gets the number even if the reader ends early: the reader has these jobs.
        entry.complete(jobs=number)
    console.progress("")
    console.note(f"Exported jobs: {grouped(number)}, with their arguments.")
    if offloaded:
        console.note(
            f"Jobs with arguments in the bucket of OFFLOAD: {grouped(offloaded)}. They are not in "
            "the export, and are deleted with the jobs."
        )
    if steps:
        console.note(
            f"Jobs that are steps of workflows: {grouped(steps)}. Their workflows and the steps "
            "that wait are not in the export: an import makes each a job of its own."
        )
    return OK


class _Import:
    """Reads lines, stores them in batches, and counts what became of each."""

    def __init__(self, console: Console, *, dry_run: bool, rerun: bool) -> None:
        self._console = console
        self._dry_run = dry_run
        self._rerun = rerun
        self._batch: list[tuple[int, dict[str, Any]]] = []
        self.counts: Counter[str] = Counter()
        self.steps = 0
        #: How many jobs have data of an extension that imports none, by the extension's name.
        self.left_out: Counter[str] = Counter()
        self.errors: list[dict[str, Any]] = []

    def read(self, lines: BinaryIO) -> None:
        limits = settings().limits
        longest = limits.envelope_bytes + settings().max_result_bytes + _MORE_BYTES
        for number, line in _lines(lines, longest):
            try:
                if line is None:
                    raise InvalidRequest(f"The line has more than {grouped(longest)} bytes.")
                if line.strip():
                    self._add(number, line)
            except OJSError as error:
                self._reject(number, error.message)
            if number % PROGRESS == 0:
                text = f"{grouped(number)} line" if number == 1 else f"{grouped(number)} lines"
                self._console.progress(text)
        self._flush()
        self._console.progress("")

    def _add(self, number: int, line: bytes) -> None:
        data = json.loads(line, exact_integers=settings().limits.exact_integers)
        if not isinstance(data, dict):
            raise InvalidRequest("The line must be a JSON object: the envelope of a job.")
        state = data.get("state")
        if state is not None and state not in [*State]:
            # Otherwise it would be enqueued, although a job in another state may have run already.
            raise InvalidRequest(f"state must be one of {', '.join(State)}.")
        if state == State.RETRYABLE and data.get("next_attempt_at") is not None:
            data["scheduled_at"] = data["next_attempt_at"]
        elif state == State.PENDING:
            data["pending"] = True
        if data.get("original_queue"):
            # This is a dead letter in a dead letter queue, where no worker would run it.
            data["queue"] = data["original_queue"]
        # `_push` reads the data again: a middleware may have changed the envelope of a failed push.
        envelope.validate(_read(data), settings().limits)
        self._batch.append((number, data))
        if len(self._batch) == BATCH:
            self._flush()

    def _flush(self) -> None:
        batch, self._batch = self._batch, []
        known = set(Job.primary.filter(pk__in=_ids(batch)).values_list("pk", flat=True))
        new = []
        for number, data in batch:
            key = UUID(data["id"]) if data.get("id") else None
            if key in known:
                self._exists(number, key)
                continue
            if data.get("state") in _RUNS_AGAIN and not self._rerun:
                state = data["state"]
                self._reject(
                    number,
                    f"The job was {state} when it was exported, and would run again. --rerun "
                    "imports such jobs.",
                )
                continue
            if key is not None:
                known.add(key)
            new.append((number, data))
        if self._dry_run:
            self._count_steps(new)
            self.counts["valid"] += len(new)
        elif new:
            self._store(new)

    def _store(self, batch: list[tuple[int, dict[str, Any]]]) -> None:
        while batch:
            try:
                results = _push([data for _line, data in batch])
            except OJSError as error:
                index = error.details.get("index")
                if index is None and len(batch) > 1:
                    # A queue may be full, for example. Jobs of other queues can still be stored.
                    for one in batch:
                        self._store([one])
                    return
                number, data = batch.pop(index or 0)
                existing = error.details.get("existing_job_id")
                if isinstance(error, DuplicateJob) and existing == data.get("id"):
                    self._exists(number, existing)
                else:
                    self._reject(number, error.message)
            else:
                for result in results:
                    self.counts[result.outcome.value] += 1
                self._count_steps(batch)
                return

    def _count_steps(self, batch: list[tuple[int, dict[str, Any]]]) -> None:
        self.steps += sum(data.get("workflow_id") is not None for _line, data in batch)
        known = {name for name, _hook in hooks.registry.imported}
        for _line, data in batch:
            if isinstance(own := data.get(EXTENSIONS), dict):
                self.left_out.update(own.keys() - known)

    def _exists(self, number: int, key: object) -> None:
        self.counts["existing"] += 1
        self._console.note(f"line {number}: the job {key} exists already, and is left as it is.")

    def _reject(self, number: int, message: str) -> None:
        self.counts["rejected"] += 1
        if len(self.errors) < MAX_ERRORS:
            self.errors.append({"line": number, "error": message})
        self._console.note(f"line {number}: {message}")


def _read(data: dict[str, Any]) -> Envelope:
    values = settings()
    return envelope.parse(data, default_retry=values.default_retry, limits=values.limits)


def _push(batch: Sequence[dict[str, Any]]) -> list[EnqueuedJob]:
    options = PushOptions(batch=True, notes=hooks.notes())
    more = [data.get(EXTENSIONS) for data in batch]
    if not any(more):
        return push_batch([_read(data) for data in batch], options)
    with database.atomic():
        results = push_batch([_read(data) for data in batch], options)
        pairs = zip(results, more, strict=True)
        hooks.imported(
            {
                result.id: own
                for result, own in pairs
                if isinstance(own, dict) and result.outcome is Outcome.STORED
            }
        )
    return results


def _ids(batch: Sequence[tuple[int, dict[str, Any]]]) -> list[UUID]:
    return [UUID(data["id"]) for _line, data in batch if data.get("id")]


def _lines(lines: BinaryIO, longest: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield each line with its number, or None for one that is too long to be read."""
    number = 0
    while line := _read_line(lines, longest + 1):
        number += 1
        if len(line) <= longest or line.endswith(b"\n"):
            yield number, line
            continue
        while rest := _read_line(lines, longest):
            if rest.endswith(b"\n"):
                break
        yield number, None


def _read_line(lines: BinaryIO, most: int) -> bytes:
    try:
        return lines.readline(most)
    except OSError as error:  # The disk may fail, for example.
        raise _unreadable(lines.name, error, returncode=FAILED) from error


def _opened(name: str) -> AbstractContextManager[BinaryIO]:
    if name == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise _unreadable(name, error, returncode=USAGE) from None


def _unreadable(name: str, error: OSError, *, returncode: int) -> CommandError:
    text = f"{name} cannot be read: {error.strerror}."
    return CommandError(text, returncode=returncode)


def _counts(found: _Import, names: Iterable[str]) -> dict[str, int]:
    return {str(each): found.counts[each] for each in (*names, "existing", "rejected")}


def _import(console: Console, options: Options) -> int:
    name = options["file"]
    found = _Import(console, dry_run=options["dry_run"], rerun=options["rerun"])
    with _opened(name) as lines:
        # The audit entry is stored first, because many transactions follow.
        entry = (
            operator.Acted()
            if options["dry_run"]
            else operator.acted("jobs.imported", object_type="job")
        )
        try:
            found.read(lines)
        finally:
            # The audit entry gets counts even after an interruption: earlier batches are stored.
            entry.complete(**_counts(found, Outcome))
    if found.steps:
        console.note(
            f"Jobs that were steps of workflows: {grouped(found.steps)}. Each is imported as a job "
            "of its own, which no later step follows."
        )
    for name, number in sorted(found.left_out.items()):
        console.note(
            f"Jobs with data of the extension {name}: {grouped(number)}. It is not installed here, "
            "and the data is left out."
        )
    counts = _counts(found, ["valid"] if options["dry_run"] else Outcome)
    if console.as_json:
        console.json({**counts, "errors": found.errors})
    else:
        console.line(
            ", ".join(f"{grouped(number)} {each}" for each, number in counts.items()) + "."
        )
    return FAILED if counts["rejected"] else OK


def _import_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", default="-", metavar="FILE", help="JSON lines (default: stdin)"
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check each line and whether its id exists, and store nothing",
    )
    parser.add_argument(
        "--rerun",
        action="store_true",
        help="also import jobs that were running or had ended: they run again",
    )


SUBCOMMANDS: Final = (
    Subcommand(
        name="export",
        help="write jobs as JSON lines",
        description=with_search_help(
            "Write the envelopes of jobs to stdout, one on each line, with their "
            "arguments, metadata and\nresults: ADMIN_REDACT hides nothing here. "
            "A job that changes during the export is written as it was when it\nwas read."
        ),
        examples="""\
  manage.py ojs export > jobs.jsonl
  manage.py ojs export --state discarded --queue email > failed.jsonl
  manage.py ojs export 'ended:>30d' | gzip > archive.jsonl.gz""",
        add_arguments=add_search,
        run=_export,
    ),
    Subcommand(
        name="import",
        help="enqueue the jobs of an export",
        description="""\
Enqueue the job of each line, as PUSH does: with the same checks, middleware, unique policies and
bounds. An id that exists is reported and left as it is, so an import can be repeated. Attempts
start anew; a retryable job waits until its next attempt was due. Rejected lines are named on
stderr, and make the exit code 1.""",
        examples="""\
  manage.py ojs import jobs.jsonl --dry-run
  manage.py ojs import jobs.jsonl
  zcat archive.jsonl.gz | manage.py ojs import --rerun""",
        add_arguments=_import_arguments,
        run=_import,
    ),
)
