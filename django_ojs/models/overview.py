"""A place for the overview: no table, but a line in the admin's sidebar and a permission."""

from django.db import models


class Overview(models.Model):
    """What an operator sees first. Nothing is stored."""

    class Meta:
        managed = False
        default_permissions = ("view",)
        verbose_name = "overview"
        verbose_name_plural = "overview"

    def __str__(self) -> str:
        return "Overview"
