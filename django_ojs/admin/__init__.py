"""The operator's pages in the Django admin, a file each.

Django imports this when its admin is installed; nothing else does. Other sites, and sites with a
theme, get the pages by `register`.
"""

from django_ojs.admin import api_keys, outbox
from django_ojs.admin.sites import register

register()

__all__ = ["api_keys", "outbox", "register"]
