"""The health file of a worker, and the probe: `python -m django_ojs.worker.health FILE`.

The probe imports neither Django nor the project, so that it can run every few seconds. It does not
ask the database, because restarting the worker does not help while the database is away.
"""

import os
import sys
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Final

#: Seconds between two writes.
WRITE_INTERVAL: Final = 1.0
#: Seconds after which a worker that has not written counts as hung.
MAX_AGE: Final = 60.0


class HealthFile:
    """The supervisor writes the time into it in each round, and whether its processes are ready."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._written_at: float | None = None

    def write(self, *, is_ready: bool) -> None:
        """Write the file, at most once a second. Raises OSError."""
        now = time.monotonic()
        if self._written_at is not None and now - self._written_at < WRITE_INTERVAL:
            return
        self._written_at = now
        # The file is replaced as a whole, so that a reader never sees a part of it. The clock is
        # the monotonic one, because the clock of the system may be changed.
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        temporary.write_text(f"{now} {'ready' if is_ready else 'not-ready'}\n")
        temporary.replace(self._path)

    def remove(self) -> None:
        """Remove the file, at the end of the worker."""
        self._path.unlink(missing_ok=True)


def problem(path: str, *, ready: bool = False, max_age: float = MAX_AGE) -> str | None:
    """Return what is wrong with the worker that writes this file, or None.

    With `ready`, its processes must have stored a heartbeat lately too.
    """
    try:
        written_at, status = Path(path).read_text().split()
        age = time.monotonic() - float(written_at)
    except OSError as error:
        return f"{path} cannot be read ({type(error).__name__}): no worker has started here."
    except ValueError:
        return f"{path} is no health file."
    # A negative age means that it was written before the machine was started.
    if not 0 <= age <= max_age:
        return f"{path} is {age:.0f} s old: the worker does not run."
    if ready and status != "ready":
        return (
            "Not all processes of the worker have stored a heartbeat within the last three "
            "intervals: they start, stop, or cannot write to the database."
        )
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 for a healthy worker, otherwise 1."""
    parser = ArgumentParser(
        prog="python -m django_ojs.worker.health",
        description="Check a worker that was started with --health-file.",
    )
    parser.add_argument("file", metavar="FILE")
    parser.add_argument(
        "--ready", action="store_true", help="require a recent heartbeat of each of its processes"
    )
    parser.add_argument(
        "--max-age",
        type=float,
        default=MAX_AGE,
        metavar="SECONDS",
        help=f"how old the file may be (default: {MAX_AGE:.0f})",
    )
    given = parser.parse_args(arguments)
    found = problem(given.file, ready=given.ready, max_age=given.max_age)
    if found is not None:
        print(found, file=sys.stderr)
    return 0 if found is None else 1


if __name__ == "__main__":
    sys.exit(main())
