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
            "PL-011": "A client checks sizes before it sends.",
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
}

#: Where we keep the sense of a requirement and not its letter, or more than it asks for.
NOTES: Final[dict[str, str]] = {
    "L0-ENV-003": (
        "Lower case only, as the core document says; hyphens may stand in a word, as the OpenAPI "
        "document says."
    ),
    "L0-LC-002": (
        "Beyond this table, with the core document: a lapsed claim is available again, and a "
        "discarded job can be retried by hand. [States](states.md) has all of them."
    ),
    "L0-EVT-001": (
        "As signals with any settings. As events of the log with `KEEP_EVENTS`, whose default has "
        "none of the four, because they would be three rows for each job."
    ),
    "L0-EVT-002": (
        "As `data.job_id`, `data.job_type`, `data.queue`, `data.state` and `time` of an event; a "
        "signal has the job."
    ),
    "L1-EVT-001": "As a signal with any settings; as an event with `KEEP_EVENTS`.",
    "L1-EVT-002": "As a signal with any settings; as an event with `KEEP_EVENTS`.",
    "L1-CAN-002": "An active job can be cancelled too.",
    "L4-PRI-003": "HIGH, NORMAL and LOW are 10, 0 and -10; the range is -100 to 100.",
}

SECTIONS: Final[tuple[Section, ...]] = (*LEVELS.values(), *EXTENSIONS.values())
KNOWN: Final[dict[str, str]] = {
    name: text for section in SECTIONS for name, text in (section.must | section.may).items()
}
