"""The ways in which an operator calls."""

from django.db import models
from django.utils.translation import gettext_lazy as _


class ActorKind(models.TextChoices):
    """How an operator has called: as a user, with an API key, or from a shell."""

    USER = "user", _("user")
    API_KEY = "api_key", _("API key")
    COMMAND = "command", _("command line")
    OTHER = "other", "HTTP"
