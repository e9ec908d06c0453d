"""The requirements of the documents that this package meets or sets out to meet, in our words.

A line: id, what it asks for, and how we differ from its letter, if we do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A level, or an extension. `must`: what a manifest that names it promises."""

    title: str
    must: dict[str, str]
    may: dict[str, str]
    #: An extension of servers, which their manifest declares.
    of_servers: bool = True


LEVELS: Final[dict[int, Section]] = {
    0: Section(
        title="Level 0: core",
        must={
            "L0-ENV-001": "An envelope has specversion, id, type, queue and args.",
            "L0-ENV-002": "An id that the client leaves out is a new UUIDv7.",
            "L0-ENV-003": "A type is one or more words with dots between them.",
            "L0-ENV-004": "The name of a queue keeps to its pattern.",
            "L0-ENV-005": "Args are an array of JSON values.",
            "L0-ENV-006": "Unknown fields are accepted and kept.",
            "L0-OPS-001": "PUSH stores a job.",
            "L0-OPS-002": "FETCH hands a job to a worker.",
            "L0-OPS-003": "ACK completes a job.",
            "L0-OPS-004": "FAIL records a structured error.",
            "L0-LC-001": "A job is in one of eight states.",
            "L0-LC-002": "Only the transitions of the table are made.",
            "L0-LC-003": "Any other transition is refused with the current and the needed state.",
            "L0-EVT-001": "Enqueued, started, completed and failed are events.",
            "L0-EVT-002": "An event says which job, type, queue, state and when.",
            "L0-Q-001": "There is a queue named default.",
            "L0-WF-001": "Jobs travel as JSON.",
            "L0-MW-001": "Middleware runs before a job is stored.",
            "L0-MW-002": "Middleware wraps the run of a job.",
        },
        may={},
    ),
    1: Section(
        title="Level 1: reliable",
        must={
            "L1-RET-001": "A retry policy says how long to wait between attempts.",
            "L1-RET-002": "Its fields are attempts, first and largest wait, coefficient, jitter.",
            "L1-RET-003": "Named errors are not retried.",
            "L1-DLQ-001": "A job whose attempts are spent is discarded.",
            "L1-DLQ-002": "Discarded jobs can be listed and looked at.",
            "L1-HB-001": "BEAT says that a worker is alive.",
            "L1-HB-002": "Its response can make a worker quiet, or end it.",
            "L1-VT-001": "A claimed job is reserved for a time.",
            "L1-VT-002": "When that ends without an ACK or FAIL, the job is available again.",
            "L1-CAN-001": "CANCEL cancels a job.",
            "L1-CAN-002": "Whatever has not started can be cancelled.",
            "L1-INFO-001": "INFO shows the whole job.",
            "L1-EVT-001": "A retry is an event.",
            "L1-EVT-002": "A cancellation is an event.",
        },
        may={},
    ),
    2: Section(
        title="Level 2: scheduled",
        must={
            "L2-DEL-001": "A job may say when it is due.",
            "L2-DEL-002": "It does not run before that.",
            "L2-CRON-001": "Cron expressions make jobs.",
            "L2-CRON-002": "They may be in a time zone.",
            "L2-CRON-003": "Runs of one schedule do not overlap.",
            "L2-TTL-001": "A job may have a deadline.",
            "L2-TTL-002": "After it, the job is discarded and does not run.",
            "L2-TZ-001": "Time zones are those of the IANA database.",
        },
        may={},
    ),
    4: Section(
        title="Level 4: advanced",
        must={
            "L4-PRI-001": "A queue has priorities, three of them with names.",
            "L4-PRI-002": "A priority may be a number; the higher one goes first.",
            "L4-PRI-003": "The names stand for fixed numbers.",
            "L4-UNIQ-001": "What makes a job unique is chosen: type, queue, fields of args.",
            "L4-UNIQ-002": "A duplicate can be refused.",
            "L4-UNIQ-003": "How strong the promise is, is stated.",
            "L4-BULK-001": "Many jobs can be enqueued at once.",
            "L4-BULK-002": "A thousand of them, at least.",
            "L4-PAUSE-001": "A paused queue takes jobs and hands out none.",
            "L4-PAUSE-002": "A queue can be resumed.",
            "L4-STATS-001": "A queue has figures: by state, and of what was done.",
        },
        may={"L4-RATE-001": "Rates and concurrency can be limited."},
    ),
}

#: The core document, a row for each thing that it requires: sections 5 to 8, and 14.
CORE: Final[tuple[Section, ...]] = (
    Section(
        title="Core §5: the job envelope",
        must={
            "CORE-5.1-1": "A job has a type and args.",
            "CORE-5.1-2": "specversion is the version of the document.",
            "CORE-5.1-3": "An id is a UUIDv7 in lower case with hyphens.",
            "CORE-5.1-4": "A type is not empty.",
            "CORE-5.1-5": "A word of a type is a letter, then a-z, 0-9 and underscores.",
            "CORE-5.1-6": "A queue is a-z, 0-9, hyphens and dots, a-z or 0-9 first.",
            "CORE-5.1-7": "The name of a queue has a largest length.",
            "CORE-5.1-8": "A job without a queue is in the queue default.",
            "CORE-5.1-9": "There is always a queue default.",
            "CORE-5.1-10": "Args are an array.",
            "CORE-5.1-11": "Each argument is a value of JSON.",
            "CORE-5.1-12": "No serialization of a language is needed or supported.",
            "CORE-5.2-1": "What is left out has its documented default.",
            "CORE-5.2-2": "Meta is an object.",
            "CORE-5.2-3": "The names and the values in meta are those that JSON has.",
            "CORE-5.2-4": "Meta is the same in every state.",
            "CORE-5.2-5": "Meta needs no member.",
            "CORE-5.2-6": "A priority is an integer.",
            "CORE-5.2-7": "Priorities from -100 to 100 are supported.",
            "CORE-5.2-8": "In a queue, the job with the higher priority is fetched first.",
            "CORE-5.2-9": "Of equal priorities, the first that came is fetched first.",
            "CORE-5.2-10": "A timeout is a positive integer.",
            "CORE-5.2-11": "A run that takes longer fails with the type timeout.",
            "CORE-5.2-12": "A timeout of 0 is the default of the server.",
            "CORE-5.2-13": "scheduled_at is a timestamp with an offset.",
            "CORE-5.2-14": "A job with a time in the future is scheduled.",
            "CORE-5.2-15": "It is available when its time has come.",
            "CORE-5.2-16": "expires_at is a timestamp with an offset.",
            "CORE-5.2-17": "A job whose deadline has passed is discarded when it would be fetched.",
            "CORE-5.2-18": "A job whose deadline has passed does not run.",
            "CORE-5.2-19": "A schema is a URI.",
            "CORE-5.2-20": "A schema is kept by a server that does not validate it.",
            "CORE-5.3-1": "What a client sends for attributes of the server is ignored.",
            "CORE-5.3-2": "The state is one of eight.",
            "CORE-5.3-3": "The attempt is 0 before the first run and 1 in it.",
            "CORE-5.3-4": "created_at is the time of the PUSH.",
            "CORE-5.3-5": "enqueued_at is the time at which the job became available.",
            "CORE-5.3-6": "started_at is the time of the last FETCH.",
            "CORE-5.3-7": "completed_at is the time at which the job was completed or discarded.",
            "CORE-5.3-8": "Times are RFC 3339 with an offset.",
            "CORE-5.3-9": "The error has the structure of §8.",
            "CORE-5.3-10": "A result is a value of JSON.",
            "CORE-5.5-1": "Values come back as JSON has them, without a loss.",
            "CORE-5.5-2": "A timestamp without an offset is refused.",
            "CORE-5.5-3": "No two jobs have the same id.",
            "CORE-5.5-4": "Unknown attributes are kept.",
            "CORE-5.5-5": "Unknown attributes are no reason to refuse a job.",
        },
        may={},
    ),
    Section(
        title="Core §6: the states",
        must={
            "CORE-6-1": "The transition table is enforced.",
            "CORE-6-2": "A transition that is not in the table is refused with an error.",
            "CORE-6.1-1": "There are exactly eight states.",
            "CORE-6.3-1": "A transition that is not listed is refused.",
            "CORE-6.3-2": "Of the terminal states only discarded can be left, by hand.",
            "CORE-6.3-3": "A job is in one state at a time.",
            "CORE-6.3-4": "The attempt only grows.",
            "CORE-6.4-1": "A job becomes active out of available only.",
            "CORE-6.5-1": "A transition happens whole or not at all.",
            "CORE-6.5-2": "One worker claims a job, and no other.",
            "CORE-6.5-3": "A FETCH that finds a job claimed is no error.",
            "CORE-6.5-4": "Nothing happens by itself to a completed or discarded job.",
            "CORE-6.5-5": "A cancelled job stays cancelled.",
        },
        may={},
    ),
    Section(
        title="Core §7: the operations",
        must={
            "CORE-7.1-1": "PUSH validates the envelope.",
            "CORE-7.1-2": "A job with a time in the future is scheduled.",
            "CORE-7.1-3": "A job without a time, or with one in the past, is available.",
            "CORE-7.1-4": "A job with the pending flag is pending.",
            "CORE-7.1-5": "PUSH sets the attributes of the server.",
            "CORE-7.1-6": "A unique policy is enforced.",
            "CORE-7.1-7": "Enqueue middleware runs before the job is stored.",
            "CORE-7.1-8": "PUSH returns the whole envelope.",
            "CORE-7.1-9": "All jobs of a batch are stored, or none.",
            "CORE-7.2-1": "A worker names the queues from which it fetches.",
            "CORE-7.2-2": "FETCH takes the job with the highest priority.",
            "CORE-7.2-3": "Queues are searched from left to right.",
            "CORE-7.2-4": "A fetched job becomes active, and no other worker can claim it.",
            "CORE-7.2-5": "FETCH sets started_at.",
            "CORE-7.2-6": "FETCH counts the attempt.",
            "CORE-7.2-7": "FETCH returns the whole envelope.",
            "CORE-7.3-1": "Only an active job can be acknowledged.",
            "CORE-7.3-2": "Only the worker that claimed a job acknowledges it.",
            "CORE-7.3-3": "ACK makes the job completed.",
            "CORE-7.3-4": "ACK sets completed_at.",
            "CORE-7.3-5": "ACK stores the result.",
            "CORE-7.3-6": "ACK happens whole or not at all.",
            "CORE-7.4-1": "Only an active job can fail.",
            "CORE-7.4-2": "FAIL needs an error object.",
            "CORE-7.4-3": "FAIL stores the error.",
            "CORE-7.4-4": "With attempts left, the job becomes retryable.",
            "CORE-7.4-5": "Otherwise, and if the error is not retryable, it is discarded.",
            "CORE-7.4-6": "The time of the next attempt is that of the policy.",
            "CORE-7.4-7": "It is available when that time has come.",
            "CORE-7.4-8": "FAIL happens whole or not at all.",
            "CORE-7.5-1": "A worker is registered when it sends heartbeats.",
            "CORE-7.5-2": "A worker sends heartbeats at regular intervals.",
            "CORE-7.5-3": "BEAT updates when the worker was seen last.",
            "CORE-7.6-1": "A job that is scheduled, available or pending can be cancelled.",
            "CORE-7.6-2": "An active job can be cancelled.",
            "CORE-7.6-3": "A retryable job can be cancelled.",
            "CORE-7.6-4": "Cancelling a cancelled job succeeds.",
            "CORE-7.7-1": "INFO returns the whole envelope.",
            "CORE-7.7-2": "A job that does not exist is not found.",
            "CORE-7.7-3": "INFO changes nothing.",
        },
        may={},
    ),
    Section(
        title="Core §8: errors",
        must={
            "CORE-8-1": "An error is an object with a type and a message.",
            "CORE-8.3-1": "FAIL accepts the error object.",
            "CORE-8.3-2": "The error of a job is the one of its last failure.",
            "CORE-8.3-3": "An error that the policy names as not retryable discards at once.",
        },
        may={},
    ),
    Section(
        title="Core §14: security",
        must={
            "CORE-14-1": "Arguments are never executed.",
            "CORE-14-2": "No serialization that can execute code is used.",
            "CORE-14-3": "Meta gives no rights.",
        },
        may={
            "CORE-14-4": "Backtraces can be left out.",
            "CORE-14-5": "The size of an envelope is limited.",
        },
    ),
)

EXTENSIONS: Final[dict[str, Section]] = {
    "admin-api": Section(
        title="Extension: admin-api",
        must={
            "ADM-001": "Queues are listed with a count for each state.",
            "ADM-002": "Queues are paused and resumed.",
            "ADM-003": "Jobs are listed in pages, by state.",
            "ADM-004": "One job is shown whole.",
            "ADM-005": "There are totals.",
            "ADM-006": "Workers are listed.",
            "ADM-007": "Many jobs are retried by a filter, once that is confirmed.",
            "ADM-008": "All of it is under one prefix.",
        },
        may={
            "ADM-R001": "A queue is purged by state and age.",
            "ADM-R002": "Figures have a history.",
            "ADM-R003": "A worker is made quiet.",
            "ADM-R004": "There is a maintenance mode.",
            "ADM-R005": "Many jobs are cancelled or deleted at once.",
            "ADM-R006": "Queues are configured.",
        },
    ),
    "backpressure": Section(
        title="Extension: backpressure",
        must={
            "BP-001": "A queue may be bounded in its depth.",
            "BP-002": "A job over the bound is refused with 429 and Retry-After.",
            "BP-003": "Operators set the bound.",
            "BP-004": "A refusal is an event.",
            "BP-005": "A refusal says how deep the queue is, and its bound.",
        },
        may={
            "BP-R001": "A queue may be bounded in its bytes.",
            "BP-R002": "A producer may wait for room.",
            "BP-R003": "The oldest jobs may make room.",
            "BP-R004": "A success says when the queue is nearly full.",
            "BP-R005": "How full a queue is, is measured.",
        },
    ),
    "payload-limits": Section(
        title="Extension: payload-limits",
        must={
            "PL-001": "An envelope of a mebibyte is always accepted.",
            "PL-002": "Meta ends at 64 KiB.",
            "PL-003": "The name of a queue ends at 255 bytes.",
            "PL-004": "A type ends at 255 bytes.",
            "PL-005": "The manifest states the largest envelope.",
            "PL-006": "A larger one is 413.",
            "PL-007": "References are passed on as they are.",
            "PL-010": "Sizes are those of the unpacked JSON.",
            "PL-013": "A reference's checksum is verified.",
        },
        may={
            "PL-008": "An envelope of ten mebibytes is accepted.",
            "PL-009": "gzip and zstd are read.",
            "PL-011": "A client checks sizes by the manifest before it sends.",
            "PL-012": "References are resolved for the handler.",
            "PL-014": "A queue may have a limit of its own.",
        },
    ),
    "framework-adapters": Section(
        title="Extension: framework-adapters",
        must={
            "FA-001": "A job may be enqueued for when the transaction commits.",
            "FA-002": "It is not sent when the transaction rolls back.",
            "FA-003": "What is in the outbox is delivered at least once.",
        },
        may={
            "FA-R001": "The request's user and trace go with the job.",
            "FA-R002": "The relay sends batches.",
            "FA-R003": "Starting and stopping are the framework's.",
        },
    ),
    "testing": Section(
        title="Extension: testing",
        must={
            "TST-001": "A test can keep jobs in memory, without a database.",
            "TST-002": "A test asserts a job by type, arguments, queue and a part of the meta.",
            "TST-003": "A test refutes a job by the same.",
            "TST-004": "A test clears its jobs.",
            "TST-005": "Tests that run at once share no jobs.",
            "TST-006": "After a test, jobs are stored as before.",
        },
        may={
            "TST-R001": "An enqueue can run its job at once.",
            "TST-R002": "Jobs in memory can be drained.",
            "TST-R003": "A test asserts that a job has run, and that it is completed.",
            "TST-R004": "A test stops and moves the clock.",
            "TST-R005": "A test lets the next run fail, or all.",
        },
        of_servers=False,
    ),
}

#: Where we keep the sense of a requirement and not its letter, or more than it asks for.
NOTES: Final[dict[str, str]] = {
    "L0-ENV-003": "Lower case only, as the core document says; a hyphen is accepted in a word too.",
    "L0-LC-002": (
        "Beyond this table, with the core document: a lapsed claim is available again, and a "
        "discarded job can be retried by hand. [States](states.md) has all of them."
    ),
    "L0-EVT-001": "As signals; recorded, for `GET /events`, where `KEEP_EVENTS` names them.",
    "L0-EVT-002": "As `data.job_id`, `data.job_type`, `data.queue`, `data.state` and `time`.",
    "L1-CAN-002": "An active job can be cancelled too.",
    "L1-EVT-001": "As `job_retrying`; recorded where `KEEP_EVENTS` names it.",
    "L1-EVT-002": "As `job_cancelled`; recorded where `KEEP_EVENTS` names it.",
    "PL-011": "By the relay of the outbox; an enqueue checks the limits of this site.",
    "TST-004": "As `clear`; [Decisions](spec-decisions.md#testing) has the other names.",
    "TST-R004": "As `freeze` and `advance`.",
    "L4-PRI-003": "HIGH, NORMAL and LOW are 10, 0 and -10; the range is -100 to 100.",
    "CORE-5.1-2": "`1.0`, as in the HTTP binding, is accepted too.",
    "CORE-5.1-5": "A hyphen is accepted in a word too.",
    "CORE-5.1-7": "255 bytes, as in the payload limits, not 128 characters.",
    "CORE-5.2-10": "A duration such as PT30S is accepted too.",
    "CORE-5.2-13": "A time from now, such as +PT5M, is accepted too.",
    "CORE-5.2-16": "A time from now is accepted too.",
    "CORE-5.2-17": "Also by maintenance, whether or not a worker fetches.",
    "CORE-5.3-5": "It is absent until then.",
    "CORE-5.3-7": "Absent where no run ended it: after a deadline, or a discard by hand.",
    "CORE-5.3-9": "With `code` beside it, as in the HTTP binding.",
    "CORE-5.5-1": "PostgreSQL returns -0.0 as 0.0; a decimal is a double.",
    "CORE-6.3-1": "[States](states.md) names the source of the transitions beyond this table.",
    "CORE-6.3-4": "A retry by hand sets it to 0, as the table of transitions says.",
    "CORE-6.5-4": "Until it is pruned.",
    "CORE-7.1-5": "enqueued_at is set when the job becomes available (§5.3).",
    "CORE-7.3-2": "Checked where the ACK names its worker: over HTTP it may leave it out.",
    "CORE-7.3-5": "A result of null is none.",
    "CORE-7.5-1": "The first BEAT registers it.",
    "CORE-7.6-4": "A conflict over HTTP, as in the binding; for other jobs that ended, everywhere.",
    "CORE-8-1": "A `code` stands for the type, and a missing message is the type.",
    "CORE-8.3-2": "`errors` has the history.",
    "CORE-14-5": "10 MiB by default.",
}

SECTIONS: Final[tuple[Section, ...]] = (*LEVELS.values(), *CORE, *EXTENSIONS.values())
KNOWN: Final[dict[str, str]] = {
    name: text for section in SECTIONS for name, text in (section.must | section.may).items()
}
