"""The operator's pages in the Django admin, a file each.

Django imports this when its admin is installed; nothing else does.
"""

from django_ojs.admin import api_keys, outbox

__all__ = ["api_keys", "outbox"]
