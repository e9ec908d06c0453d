"""The WSGI entry point of the example project."""

import os

from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")

# Django's handler for static files is not made for production; this site never leaves 127.0.0.1.
application = StaticFilesHandler(get_wsgi_application())
