"""A proxy of Queue: the entry of the overview in the admin, and its permission."""

from django.utils.translation import gettext_lazy as _

from django_ojs.models.queue import Queue


class Overview(Queue):
    """The overview page. A proxy, because `dumpdata` reads the table of every other model."""

    class Meta:
        proxy = True
        default_permissions = ("view",)
        verbose_name = _("overview")
        verbose_name_plural = _("overview")

    def __str__(self) -> str:
        return "Overview"
