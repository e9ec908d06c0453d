"""URLs of the example project."""

from django.conf import settings
from django.contrib import admin
from django.urls import include, path
from django.views.generic import TemplateView
from django.views.static import serve

urlpatterns = [
    path("admin/", admin.site.urls),
    # Django's file view is not made for production; this site never leaves 127.0.0.1.
    path("media/<path:path>", serve, {"document_root": settings.MEDIA_ROOT}),
    # Before the API's own, which match every path below ojs/.
    path("ojs/docs/", TemplateView.as_view(template_name="shop/api_docs.html"), name="api-docs"),
    path("", include("django_ojs.http.urls")),
    path("", include("example_project.shop.urls")),
]
