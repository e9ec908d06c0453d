"""Filters and tags of the operator's pages; none in a project without the admin.

Django imports the libraries of all installed apps when it sets up its templates.
"""

from django import template
from django.apps import apps

if apps.is_installed("django.contrib.admin"):
    from django_ojs.admin.template_tags import register as register
else:
    register = template.Library()
