"""The jobs of a test in the inline mode: each has run when its enqueue returns."""

from collections.abc import Callable, Sequence

from django_ojs.operations.enqueue.result import EnqueuedJob, Outcome
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.states import State
from django_ojs.testing import runner
from django_ojs.testing.failures import Failures
from django_ojs.testing.memory_store import MemoryStore


class InlineStore(MemoryStore):
    """Jobs in memory, which run at once, whenever they are scheduled."""

    def __init__(self, failures: Failures) -> None:
        super().__init__()
        self._failures = failures

    def push(
        self,
        envelopes: Sequence[Envelope],
        *,
        batch: bool,
        store: Callable[[], list[EnqueuedJob]],
    ) -> list[EnqueuedJob]:
        results = super().push(envelopes, batch=batch, store=store)
        errors: list[BaseException] = []
        for job in results:
            if job.outcome is Outcome.STORED and job.state is not State.PENDING:
                try:
                    runner.run_inline(self, job.id, self._failures)
                except BaseException as error:
                    if runner.ends_test(error):
                        raise
                    errors.append(error)
        # All have run, and the callbacks of their workflows, before the first exception is raised.
        try:
            self.advance_workflows()
        finally:
            if errors:
                raise errors[0]
        return results
