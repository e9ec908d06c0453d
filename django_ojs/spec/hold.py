"""Which claims consider an available job."""

from enum import IntEnum


class Hold(IntEnum):
    """Which claims consider an available job (`Job.limit_hold`)."""

    #: All claims of its queue.
    NONE = 0
    #: Those that apply the rule which limits it.
    OPEN = 1
    #: No worker may take it: a rule keeps it back, and opens it later.
    HELD = 2

    @classmethod
    def of(cls, limit_key: str | None) -> "Hold":
        """Return the value for a new job."""
        return cls.NONE if limit_key is None else cls.OPEN
