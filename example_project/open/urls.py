"""URLs of the open server: two of its own, then the example project's."""

from django.urls import include, path

from django_ojs.http.routing import route
from example_project.open.views import Heartbeat, Reset

urlpatterns = [
    route("v1/workers/heartbeat", Heartbeat, "open-heartbeat"),
    route("v1/workers/beat", Heartbeat, "open-beat"),
    route("v1/admin/reset", Reset, "open-reset"),
    path("", include("example_project.urls")),
]
