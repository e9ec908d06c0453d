"""The searches of jobs that a user of the admin has saved."""

from django.db import models
from django.db.models.functions import Now

from django_ojs.models.base import StoredModel


class SavedSearch(StoredModel):
    """A named search of one user.

    `user` is the primary key of the user as text: users may be in another database.
    """

    id = models.BigAutoField(primary_key=True)
    user = models.CharField(max_length=255)
    name = models.CharField(max_length=100)
    query = models.CharField(max_length=2000)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        db_table = "ojs_saved_search"
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["user", "name"], name="ojs_saved_search_name")
        ]

    def __str__(self) -> str:
        return self.name
