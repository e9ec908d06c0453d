"""The bounds of queues, and how much room is known without counting."""

from django.db import models

from django_ojs.models.base import StoredModel


class Bound(StoredModel):
    """The bound that an enqueue checks (see `storage`); a queue without a row has none.

    `storage.write` derives it from the configuration. Later only the tickets change (`since` and
    `until`). On PostgreSQL the function `ojs_admit` reads it with every enqueue.
    """

    queue = models.CharField(primary_key=True, max_length=255)
    #: The number of the sequence that issues the tickets of this queue.
    slot = models.PositiveSmallIntegerField(default=0)
    #: The tickets after `since` and up to `until` are valid without counting; none is valid if
    #: `until` is -1, or after a restore has set the sequence back to before `since`.
    since = models.BigIntegerField(default=0)
    until = models.BigIntegerField(default=-1)
    #: How many tickets a transaction may take with its first shared lock (see `storage`).
    share = models.BigIntegerField(default=0)
    #: Above this, in jobs and in bytes, the queue lock is needed. NULL means no bound of this kind.
    ceiling = models.BigIntegerField(null=True)
    ceiling_bytes = models.BigIntegerField(null=True)
    #: Bytes for which a job needs one more ticket. NULL means one ticket at any size.
    unit = models.BigIntegerField(null=True)

    class Meta:
        db_table = "ojs_bound"
        default_permissions = ()

    def __str__(self) -> str:
        return self.queue
