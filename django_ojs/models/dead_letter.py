"""A place for the dead letters in the admin's sidebar; they are jobs."""

from django_ojs.models.job import Job


class DeadLetter(Job):
    """A job that failed for good and is kept for a person to look at (ojs-dead-letter §3).

    Who may see jobs may see these: there is no permission besides.
    """

    class Meta:
        proxy = True
        default_permissions = ()
        verbose_name = "dead letter"
        verbose_name_plural = "dead letters"
