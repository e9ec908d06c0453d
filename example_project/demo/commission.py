"""One order of many steps, whose worker is killed before, in and after each of them."""

import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from django.conf import settings

from django_ojs.extensions import steps
from django_ojs.extensions.steps.models import Step, StepStatus
from django_ojs.models import Job
from example_project.demo.ledger import Entry
from example_project.demo.workers import Workers
from example_project.shop import moments, partner
from example_project.shop.jobs import WORKSHOP, commission
from example_project.shop.models import Commission

REFERENCE: Final = "commission-1"
_ASLEEP: Final = "while it waits for the signal"
#: All moments of the job, and the one above.
KILLS: Final = 12
#: Seconds without progress after which the wait ends.
_STALLED_AFTER: Final = 90.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Commissioned:
    """What has become of the order, and at which moments its worker was killed."""

    state: str
    killed: tuple[str, ...]
    runs: int
    requests: tuple[partner.Request, ...]
    rows: int


class CommissionedOrder:
    """The order, with a worker of its own, from entry to exit."""

    def __init__(self, *, logs: Path, write: Callable[[str], object]) -> None:
        """Each event is written with `write`."""
        self._logs = logs
        self._write = write
        self._folder = Path(settings.VAR_DIR) / "killed"
        self._seen: list[str] = []
        self._stack = ExitStack()
        self._workers: Workers

    def __enter__(self) -> Self:
        """Enqueue the job and start the worker."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        self._job = commission.enqueue(REFERENCE).id
        self._start("commission-before")
        return self

    def __exit__(self, *error: object) -> None:
        """Stop the worker."""
        self._stack.close()

    def _start(self, name: str) -> None:
        self._workers = self._stack.enter_context(
            Workers(
                1,
                logs=self._logs,
                queues=[WORKSHOP],
                name=name,
                variables={moments.FOLDER: str(self._folder)},
            )
        )

    def go_on(self) -> None:
        """Tell of the kills; while the job waits, kill its supervisor too, and send the signal."""
        self._tell()
        if _ASLEEP in self._seen:
            return
        waiting = Step.objects.filter(job_id=self._job, outcome=StepStatus.WAITING, name="packed")
        if Job.objects.get(pk=self._job).state != "scheduled" or not waiting.exists():
            return
        self._workers.kill()
        self._note(_ASLEEP)
        self._start("commission-after")
        steps.signal("packed", REFERENCE, {"parts": 2})

    def wait(self) -> Commissioned:
        """Return when the job has ended, or does not go on."""
        changed, before = time.monotonic(), len(self._seen)
        while not (job := Job.objects.get(pk=self._job)).finished_at:
            self.go_on()
            if len(self._seen) != before:
                changed, before = time.monotonic(), len(self._seen)
            if time.monotonic() - changed > _STALLED_AFTER:
                break
            time.sleep(0.05)
        self._tell()
        return Commissioned(
            state=job.state,
            killed=tuple(self._seen),
            runs=job.run,
            requests=tuple(partner.requests()),
            rows=Commission.objects.filter(reference=REFERENCE).count(),
        )

    def _tell(self) -> None:
        for file in sorted(self._folder.iterdir(), key=lambda file: file.stat().st_mtime):
            if file.name not in self._seen:
                self._note(file.name)

    def _note(self, moment: str) -> None:
        self._seen.append(moment)
        self._write(f"killed the worker of the order of many steps: {moment}")


def section(found: Commissioned) -> tuple[str, tuple[Entry, ...]]:
    """Return the part of the ledger."""
    asked = Counter(request.what for request in found.requests)
    done = {what: len({r.number for r in found.requests if r.what == what}) for what in asked}
    return (
        "An order of many steps, killed before, in and after each of them",
        (
            Entry(label="its worker was killed", value=str(len(found.killed))),
            _check(
                f"its job is {found.state}, after so many runs",
                found.runs,
                is_right=found.state == "completed" and len(found.killed) == KILLS,
            ),
            *(
                line
                for what in ("charge", "parcel")
                for line in (
                    Entry(label=f"requests for its {what}", value=str(asked[what])),
                    _check(
                        f"of these, by one idempotency key, its {what}s",
                        done.get(what, 0),
                        is_right=done.get(what) == 1 and asked[what] > 1,
                    ),
                )
            ),
            _check("rows that committed with a step", found.rows, is_right=found.rows == 1),
        ),
    )


def _check(label: str, value: int, *, is_right: bool) -> Entry:
    problem = "" if is_right else f"The order of many steps: {label}: {value}."
    return Entry(label=label, value=str(value), checked=True, problem=problem)
