"""The job envelope as a value (ojs-core §5): what a client asks for, before a job is stored."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django_ojs.spec.ids import uuid7
from django_ojs.spec.json import JSON
from django_ojs.spec.retry_policy import RetryPolicy
from django_ojs.spec.unique_policy import UniquePolicy

SPECVERSION: Final = "1.0.0-rc.1"
#: The HTTP binding and the JSON format say "1.0" where core says "1.0.0-rc.1".
SPECVERSIONS: Final = frozenset({SPECVERSION, "1.0"})

MIN_PRIORITY: Final = -100
MAX_PRIORITY: Final = 100

#: Milliseconds that fit a 32-bit column: 24 days.
MAX_TIMEOUT_MS: Final = 2**31 - 1
#: The longest period in seconds: ten years, which every database can add to the present.
MAX_PERIOD: Final = 10 * 365 * 24 * 3600


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The largest sizes of one job, in UTF-8 bytes of compact JSON (payload-limits §3)."""

    queue_bytes: int = 255
    type_bytes: int = 255
    meta_bytes: int = 64 * 1024
    envelope_bytes: int = 10 * 1024 * 1024
    #: Allow integers of up to 64 bits, for a site whose workers are all in Python.
    exact_integers: bool = False


DEFAULT_LIMITS: Final = Limits()


@dataclass(slots=True, kw_only=True)
class Envelope:
    """A job as its client asked for it. Enqueue middleware may change all of it except `id`.

    `scheduled_at` and `expires_at` are moments in UTC, or times from now; their `_text` is what
    responses repeat: the absolute timestamp as the client wrote it. `enqueue_ttl` and
    `total_timeout` are seconds from the time at which the job is stored: until it starts for the
    first time, and until it ends. `timeout_ms` and `retry` are None where the defaults apply.
    `unique_key` is what PUSH makes of `unique`, `document` the JSON object that a client sent: its
    size is limited. `offloaded` are the objects that hold large arguments. `workflow_id` and
    `parent_results` belong to a step of a workflow. `parent_id` is the job that enqueued it, and
    `root_id` the first of its ancestors. `marks` are the bits of extensions (`Job.marks`).
    """

    id: UUID = field(default_factory=uuid7)
    type: str
    args: list[JSON] = field(default_factory=list)
    queue: str = "default"
    meta: dict[str, JSON] = field(default_factory=dict)
    priority: int = 0
    timeout_ms: int | None = None
    visibility_timeout_ms: int | None = None
    scheduled_at: datetime | timedelta | None = None
    expires_at: datetime | timedelta | None = None
    enqueue_ttl: int | None = None
    total_timeout: int | None = None
    scheduled_at_text: str | None = None
    expires_at_text: str | None = None
    retry: RetryPolicy | None = None
    unique: UniquePolicy | None = None
    schema: str | None = None
    tags: list[str] = field(default_factory=list)
    pending: bool = False
    rate_limit: dict[str, Any] | None = None
    specversion: str = SPECVERSION
    extra: dict[str, JSON] = field(default_factory=dict)
    unique_key: str | None = None
    offloaded: tuple[str, ...] = ()
    workflow_id: UUID | None = None
    marks: int = 0
    parent_id: UUID | None = None
    root_id: UUID | None = None
    parent_results: list[JSON] | None = None
    document: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    @property
    def longest_wait(self) -> int | None:
        """Within how many seconds after it is stored it must start for the first time."""
        given = (self.enqueue_ttl, self.total_timeout)
        return min((seconds for seconds in given if seconds is not None), default=None)
