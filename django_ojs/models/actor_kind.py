"""By which door an operator comes."""

from django.db import models
from django.utils.translation import gettext_lazy as _


class ActorKind(models.TextChoices):
    """How an operator has called: over the admin or HTTP as a user, with an API key, or a shell."""

    USER = "user", _("user")
    API_KEY = "api_key", _("API key")
    COMMAND = "command", _("command line")
    OTHER = "other", "HTTP"
