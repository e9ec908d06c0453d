"""The ASGI entry point of the example project, with WebSockets for events."""

import os

from django.core.asgi import get_asgi_application

from django_ojs.http.asgi import with_websockets

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")

application = with_websockets(get_asgi_application())
