"""The configuration of a worker: the arguments of the command, with the settings as defaults."""

from dataclasses import dataclass
from datetime import timedelta

from django_ojs.conf import settings
from django_ojs.spec.isolation import Isolation
from django_ojs.spec.scheduling import STRICT_ORDER, QueueOrder


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerConfig:
    """`threads` is how many jobs a process runs at a time, sync and async together.

    An operator may change it, up to `most_threads`, unless that is 0.
    `isolation` says which jobs a process claims; the supervisor sets it.
    """

    queues: tuple[str, ...] = ("default",)
    order: QueueOrder = STRICT_ORDER
    pool: str = ""
    processes: int = 1
    threads: int = 10
    most_threads: int = 0
    grace: timedelta = timedelta(seconds=25)
    poll_interval: timedelta = timedelta(milliseconds=500)
    heartbeat_interval: timedelta = timedelta(seconds=5)
    stall_timeout: timedelta = timedelta(seconds=30)
    labels: tuple[str, ...] = ()
    once: bool = False
    max_jobs: int | None = None
    max_rss_mb: int | None = None
    health_file: str | None = None
    isolation: Isolation = Isolation.ANY

    @classmethod
    def from_settings(cls, **given: object) -> "WorkerConfig":
        """Return a configuration. Arguments that are not None override the settings."""
        configured = settings()
        values: dict[str, object] = {
            "grace": configured.grace_period,
            "poll_interval": configured.poll_interval,
            "heartbeat_interval": configured.heartbeat_interval,
            "stall_timeout": configured.stall_timeout,
        }
        values |= {name: value for name, value in given.items() if value is not None}
        return cls(**values)  # type: ignore[arg-type]  # the command's parser has checked them
