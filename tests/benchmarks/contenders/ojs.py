"""django_ojs itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tests.benchmarks.contenders.base import (
    AT,
    IN_A_CHAIN,
    Command,
    Durable,
    Work,
    steps_of,
    truncate,
)

_TYPES = {
    "noop": "bench.noop",
    "async": "bench.async_noop",
    "nap": "bench.nap",
    "retried": "bench.failing",
    "discarded": "bench.failing",
}
_OPTIONS: dict[str, dict[str, Any]] = {
    "retried": {"retry": {"initial_interval": "PT1H", "max_interval": "PT1H"}},
    "discarded": {"retry": {"max_attempts": 1}},
}
#: "off" has producers announce nothing.
NOTIFY_VARIABLE = "OJS_BENCH_NOTIFY"

#: The optional apps that a measure needs.
_APPS = [f"django_ojs.extensions.{name}" for name in ("cron", "limits", "steps", "workflows")]

TABLES = ("ojs_job", "ojs_attempt", "ojs_workflow", "ojs_workflow_step")
TABLES_OF_STEPS = ("ojs_step", "ojs_step_signal")


class OpenJobSpec(Durable):
    """Through its public API and its worker command, with default settings."""

    name: ClassVar[str] = "django_ojs"
    drain_jobs: ClassVar[int] = 40_000
    workflows: ClassVar[frozenset[str]] = frozenset({"group", "chains"})
    steps_setting: ClassVar[str] = "8 threads"
    apps: ClassVar[Sequence[str]] = _APPS
    tables: ClassVar[Sequence[str]] = (*TABLES, *TABLES_OF_STEPS)

    def django_settings(self) -> dict[str, Any]:
        """Install the app and the handlers."""
        return {
            "INSTALLED_APPS": ["django_ojs", *self.apps, "tests.benchmarks"],
            "ROOT_URLCONF": "tests.benchmarks.site",
            "OJS": {},
        }

    def commands(self, work: Work) -> list[Command]:
        """Return one command: it forks by itself."""
        threads = ["--threads", str(AT)] if steps_of(work.kind) is not None else []
        processes = ["--processes", str(work.processes)]
        return [["-m", "django", "ojs_worker", *processes, *threads, "-v0"]]

    def pending(self, run: Callable[[str], list[tuple[Any, ...]]]) -> int:
        """Count what has not ended."""
        states = "('available', 'active', 'scheduled', 'retryable')"
        # A job that failed in a measure of failures is due in an hour.
        later = "state = 'retryable' AND due_at > now() + interval '10 minutes'"
        jobs = f"SELECT count(*) FROM ojs_job WHERE state IN {states} AND ({later}) IS NOT TRUE"
        if self.workflows:
            workflows = "SELECT count(*) FROM ojs_workflow WHERE state = 'running'"
            jobs = f"SELECT ({jobs}) + ({workflows})"
        return int(run(jobs)[0][0])

    def reset(self) -> None:
        """Empty the tables; the counts go with them."""
        truncate(*self.tables)

    def enqueue(self, number: int) -> None:
        """Enqueue by name, as a producer without the handler's code would."""
        import django_ojs
        from django_ojs.storage import notify

        if os.environ.get(NOTIFY_VARIABLE) == "off":
            setattr(notify, "send", lambda *_: None)  # noqa: B010 - no assignment to a function
        django_ojs.enqueue("bench.noop", [number])

    def enqueue_batch(self, numbers: Sequence[int]) -> None:
        """Enqueue by one call."""
        self._batch(numbers, "noop")

    def fill(self, numbers: Sequence[int], work: Work) -> None:
        """Enqueue jobs of the wanted kind."""
        import django_ojs

        if (steps := steps_of(work.kind)) is not None:
            type = "bench.steps" if steps else "bench.wait"
            requests = [django_ojs.request(type, [number, steps]) for number in numbers]
            django_ojs.enqueue_batch(requests)
            return
        if work.kind == "group":
            django_ojs.group(*self._requests(numbers, "noop")).enqueue()
            return
        if work.kind == "chains":
            for start in range(0, len(numbers), IN_A_CHAIN):
                some = self._requests(numbers[start : start + IN_A_CHAIN], "noop")
                django_ojs.chain(*some).enqueue()
            return
        kind = "nap" if work.kind == "poison" else work.kind
        for start in range(0, len(numbers), 1000):
            self._batch(numbers[start : start + 1000], kind)
            if work.kind == "poison" and not start:
                django_ojs.enqueue("bench.poison", [len(numbers)])

    def start_run(self, number: int) -> None:
        """Enqueue by name: a job with steps is a job."""
        import django_ojs

        django_ojs.enqueue("bench.steps", [number, 1])

    def signal(self, number: int) -> None:
        """Send a signal, in a transaction of its own."""
        from django_ojs.extensions import steps

        steps.signal("go", str(number))

    def waiting(self, run: Callable[[str], list[tuple[Any, ...]]]) -> int:
        """Count the jobs that wait for a signal."""
        return int(run("SELECT count(*) FROM ojs_job WHERE state = 'scheduled'")[0][0])

    def _batch(self, numbers: Sequence[int], kind: str) -> None:
        import django_ojs

        django_ojs.enqueue_batch(self._requests(numbers, kind))

    def _requests(self, numbers: Sequence[int], kind: str) -> list[Any]:
        import django_ojs

        options = _OPTIONS.get(kind, {})
        return [django_ojs.request(_TYPES[kind], [number], **options) for number in numbers]


class CoreAlone(OpenJobSpec):
    """Without any optional app: what a site has that installed `django_ojs` and nothing more."""

    name: ClassVar[str] = "django_ojs, core alone"
    workflows: ClassVar[frozenset[str]] = frozenset()
    apps: ClassVar[Sequence[str]] = ()
    tables: ClassVar[Sequence[str]] = ("ojs_job", "ojs_attempt")
