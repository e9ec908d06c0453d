"""The entry points that operators use."""

from django.db import models
from django.utils.translation import gettext_lazy as _


class ActorKind(models.TextChoices):
    """How an operator has acted: as a user, with an API key, from a shell, or otherwise by HTTP."""

    USER = "user", _("user")
    API_KEY = "api_key", _("API key")
    COMMAND = "command", _("command line")
    OTHER = "other", "HTTP"
