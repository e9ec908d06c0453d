"""How many jobs each queue has in each state, without counting them."""

from django.db import models

from django_ojs.models.base import StoredModel


class Count(StoredModel):
    """The folded part of a count; `storage.figures.counts` adds what changed since.

    Triggers keep it: whoever changes jobs, by whatever statement, changes the counts.
    """

    id = models.BigAutoField(primary_key=True)
    queue = models.CharField(max_length=255)
    state = models.CharField(max_length=16)
    n = models.BigIntegerField()
    bytes = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        db_table = "ojs_count"
        constraints = [models.UniqueConstraint(fields=["queue", "state"], name="ojs_count_key")]

    def __str__(self) -> str:
        return f"{self.queue} {self.state}"
