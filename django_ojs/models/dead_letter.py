"""A proxy of Job, so that the admin lists dead letters on a page of their own."""

from django.utils.translation import gettext_lazy as _

from django_ojs.models.job import Job


class DeadLetterJob(Job):
    """A discarded job that is kept for an operator (ojs-dead-letter §3).

    The permission to view jobs includes these.
    """

    class Meta:
        proxy = True
        default_permissions = ()
        verbose_name = _("dead letter")
        verbose_name_plural = _("dead letters")
