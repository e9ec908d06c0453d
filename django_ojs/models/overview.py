"""A model without a table: the entry of the overview in the admin, and its permission."""

from django.db import models


class Overview(models.Model):
    """The overview page. Nothing is stored."""

    class Meta:
        managed = False
        default_permissions = ("view",)
        verbose_name = "overview"
        verbose_name_plural = "overview"

    def __str__(self) -> str:
        return "Overview"
