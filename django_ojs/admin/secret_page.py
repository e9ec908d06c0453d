"""The page that shows a secret once, in the response to what made it."""

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.cache import add_never_cache_headers

from django_ojs.admin.operator_views import OperatorViews
from django_ojs.formatting import StrOrPromise

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[Any]
else:
    _Admin = admin.ModelAdmin


class SecretPageAdmin(OperatorViews, _Admin):
    """Adding an object leads to a page with its secret, which `save_model` sets as `obj.secret`."""

    secret_title: ClassVar[StrOrPromise]
    secret_template: ClassVar[str]

    def secret_page(self, request: HttpRequest, obj: Any, secret: str) -> HttpResponse:
        # In the response itself: a message would store the secret in a cookie or a session.
        response = TemplateResponse(
            request,
            self.secret_template,
            {
                **self.admin_site.each_context(request),
                "title": self.secret_title,
                "opts": self.opts,
                "admin_site": self.admin_site,
                "object": obj,
                "secret": secret,
            },
        )
        add_never_cache_headers(response)
        return response

    def response_add(
        self, request: HttpRequest, obj: Any, post_url_continue: str | None = None
    ) -> HttpResponse:
        return self.secret_page(request, obj, obj.secret)

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        # The other buttons would skip the page that shows the secret.
        if kwargs.get("add"):
            context |= {"show_save_and_add_another": False, "show_save_and_continue": False}
        return super().render_change_form(request, context, *args, **kwargs)
