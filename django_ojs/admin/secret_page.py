"""The page that shows a secret once, in the response to the request that made it."""

import secrets
from typing import TYPE_CHECKING, Any, ClassVar, Final

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.cache import add_never_cache_headers
from django.utils.translation import gettext as _

from django_ojs.admin.formatting import StrOrPromise
from django_ojs.admin.model_lists import OperatorViews
from django_ojs.admin.operator_views import view_name

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[Any]
else:
    _Admin = admin.ModelAdmin


#: The field of a form with its token, and the session's list of the tokens that were sent.
_FIELD: Final = "form_token"
_SENT: Final = "django_ojs_sent_forms"
#: How many of the latest tokens a session keeps, and how many characters of each.
_MAX_SENT: Final = 50
_MAX_TOKEN: Final = 40


class SecretPageAdmin(OperatorViews, _Admin):
    """Adding an object leads to a page with its secret, which `save_model` sets as `obj.secret`.

    Reloading that page sends the form again. This must not make a second secret, so each form has a
    token that works once. A redirect would have to store the secret in the meantime.
    """

    secret_title: ClassVar[StrOrPromise]
    secret_template: ClassVar[str]

    def form_token(self) -> str:
        """Return a token for a form."""
        return secrets.token_urlsafe(12)

    def sent_before(self, request: HttpRequest) -> HttpResponse | None:
        """Return a redirect if the form of this request has made a secret already."""
        if request.method != "POST" or request.POST.get(_FIELD) not in _sent(request):
            return None
        text = _("This form was sent before, and made one secret, which was shown once.")
        self.message_user(request, text, messages.WARNING)
        name = view_name(self.model, "changelist")
        return HttpResponseRedirect(reverse(name, current_app=self.admin_site.name))

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: Any = None,
    ) -> HttpResponse:
        return self.sent_before(request) or super().changeform_view(
            request, object_id, form_url, extra_context
        )

    def secret_page(self, request: HttpRequest, obj: Any, secret: str) -> HttpResponse:
        if token := request.POST.get(_FIELD):
            request.session[_SENT] = [*_sent(request), token[:_MAX_TOKEN]][-_MAX_SENT:]
        # The secret is in the response itself, because a message would store it in a cookie or a
        # session.
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
        context["form_token"] = self.form_token()
        # The other buttons would skip the page that shows the secret.
        if kwargs.get("add"):
            context |= {"show_save_and_add_another": False, "show_save_and_continue": False}
        return super().render_change_form(request, context, *args, **kwargs)


def _sent(request: HttpRequest) -> list[str]:
    found: list[str] = request.session.get(_SENT, [])
    return found
