"""How much room a bounded queue has, as far as can be said without counting."""

from django.db import models

from django_ojs.models.base import StoredModel


class Bound(StoredModel):
    """What an enqueue looks at (see `storage.bounds`); a queue without a row has no bound.

    Derived from the configuration: `storage.bounds.write` alone writes it, and who enqueues moves
    `until` on. On PostgreSQL the function `ojs_admit` reads it with every enqueue.
    """

    queue = models.CharField(primary_key=True, max_length=255)
    #: Which of the sequences gives out the tickets of this queue.
    slot = models.PositiveSmallIntegerField(default=0)
    #: The tickets after `since` and up to `until` are good without a look; -1: none is. A sequence
    #: that was set back, as a restored one may be, begins before `since`.
    since = models.BigIntegerField(default=0)
    until = models.BigIntegerField(default=-1)
    #: How many tickets a transaction may have that takes no turn.
    share = models.BigIntegerField(default=0)
    #: Where the taking of turns begins, in jobs and in bytes; NULL: no bound of this kind.
    ceiling = models.BigIntegerField(null=True)
    ceiling_bytes = models.BigIntegerField(null=True)
    #: Bytes for which a job pays one more ticket; NULL: it pays one, whatever its size.
    unit = models.BigIntegerField(null=True)

    class Meta:
        db_table = "ojs_bound"

    def __str__(self) -> str:
        return self.queue
