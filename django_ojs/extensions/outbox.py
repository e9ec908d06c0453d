"""The outbox: send its jobs to other servers, store those for this site, delete old entries."""

from collections.abc import Sequence

from django_ojs.conf import settings
from django_ojs.extension import Closing, DueStep, Extension, Hooks


class OutboxExtension(Extension):
    """Empties the outbox."""

    name = "outbox"
    number = 10

    def hooks(self) -> Hooks:
        """Return the hooks: relays are needed where jobs have other destinations."""
        return Hooks(worker_threads=_relays if settings().outbox else None)

    def due_steps(self) -> Sequence[DueStep]:
        """Store the jobs for this site for which there is room, and prune."""
        from django_ojs.operations.enqueue import outbox
        from django_ojs.outbox import local

        return (
            DueStep(run=local.deliver, interval=1.0, when=local.condition),
            DueStep(run=outbox.prune, interval=10.0, when=outbox.old_condition),
        )


def _relays(worker_id: str) -> Closing:
    from django_ojs.outbox.relay_threads import Relays, relays

    return Relays(relays(worker_id))
