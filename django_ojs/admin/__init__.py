"""The operator's pages in the Django admin.

Django imports this module when its admin is installed; nothing else does. Other admin sites get
the pages from `register`.
"""

from django_ojs.admin.sites import register as register

register()
