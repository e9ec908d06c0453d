"""Run a function of a test as the handler of a job with steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import django_ojs
from django_ojs.extensions.steps.models import Step
from django_ojs.models import Job
from django_ojs.testing import Drained, TestContext
from tests.testapp import steps_jobs


class Program:
    """A job whose handler is a function, which the test may change between two runs."""

    def __init__(self, ojs: TestContext, function: Callable[[django_ojs.JobContext], Any]) -> None:
        self.ojs = ojs
        self.change(function)
        self.id = self.handler.enqueue().id

    handler: Any = steps_jobs.run_program

    def change(self, function: Callable[[django_ojs.JobContext], Any]) -> None:
        """Let the handler do something else."""
        steps_jobs.program = function

    def run(self, **options: Any) -> Drained:
        """Run what is available; again where it fails."""
        return self.ojs.drain(**options)

    @property
    def job(self) -> Job:
        """The job as it is now."""
        return Job.objects.get(pk=self.id)

    @property
    def steps(self) -> list[Step]:
        """The stored steps, in order."""
        return list(Step.objects.filter(job_id=self.id).order_by("number"))

    @property
    def history(self) -> list[tuple[str, str]]:
        """The names of the steps, and what became of them."""
        return [(step.name, step.outcome) for step in self.steps]


class AsyncProgram(Program):
    """The same with an `async def` handler."""

    handler = steps_jobs.run_aprogram

    def change(self, function: Callable[[django_ojs.JobContext], Awaitable[Any]]) -> None:
        """Let the handler do something else."""
        steps_jobs.aprogram = function


class AtomicProgram(Program):
    """The same with `atomic=True`."""

    handler = steps_jobs.run_atomic


class Calls:
    """A function that notes its calls, and fails as often as it is told to."""

    def __init__(self, *, fails: int = 0) -> None:
        self.made: list[Any] = []
        self.fails = fails

    def __call__(self, value: Any = None) -> Any:
        self.made.append(value)
        if self.fails:
            self.fails -= 1
            raise ValueError("not this time")
        return value
