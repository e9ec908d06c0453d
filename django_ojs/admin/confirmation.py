"""The page between the wish and the deed: it names what will happen, and to what."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect

from django_ojs.admin.actions import MOST, Action, Answer, Typed, perform

if TYPE_CHECKING:
    from django_ojs.admin.base import Pages


def perform_asked(page: "Pages", request: HttpRequest, action: Action) -> HttpResponse:
    """Answer `do/<name>/`: with the page that asks, or with the deed and the way back."""
    if request.method not in ("GET", "HEAD", "POST"):
        return HttpResponseNotAllowed(["GET", "POST"])
    given = request.POST if request.method == "POST" else request.GET
    keys = list(dict.fromkeys(given.getlist("key")))
    if not keys or len(keys) > (MOST if action.many else 1):
        reason = "Nothing was selected." if not keys else f"Select at most {MOST}."
        if keys and not action.many:
            reason = "This can be done to one at a time."
        page.message_user(request, reason, messages.WARNING)
        return HttpResponseRedirect(page.back(request))
    objects = page.found(request, keys)
    # A list's own button posts here without having asked: `sure` is a field of the page that asks.
    decided = request.method == "POST" and (not action.asks or "sure" in request.POST)
    form, typed = _forms(action, request, objects, bound=decided)
    valid = all(each is None or each.is_valid() for each in (form, typed))
    if not decided or not valid:
        return _ask(page, request, action, objects, form=form, typed=typed)
    answer = perform(action, request, objects, {} if form is None else form.cleaned_data)
    if form is not None and not answer.done and len(objects) == 1:
        # The operation knows better what is wrong than the form did: nothing typed is lost.
        form.add_error(None, answer.skipped[0][1])
        return _ask(page, request, action, objects, form=form, typed=typed)
    for each, text in answer.done:
        page.log_change(request, each, text)
    _tell(page, request, action, answer)
    return HttpResponseRedirect(page.back(request))


def _forms(
    action: Action, request: HttpRequest, objects: Mapping[str, Any], *, bound: bool
) -> tuple[Any, Typed | None]:
    data = request.POST if bound else None
    first = next((each for each in objects.values() if each is not None), None)
    form = None
    if action.form is not None:
        initial = dict(action.initial(first)) if action.initial and first is not None else None
        form = action.form(data, initial=initial)
    # Of one object the name; of several, how many they are.
    name = next(iter(objects)) if len(objects) == 1 else str(len(objects))
    return form, Typed(data, name=name) if action.typed else None


def _ask(
    page: "Pages",
    request: HttpRequest,
    action: Action,
    objects: Mapping[str, Any],
    *,
    form: Any,
    typed: Typed | None,
) -> HttpResponse:
    there = [each for each in objects.values() if each is not None]
    return page.render(
        request,
        "confirm",
        action.label,
        {
            "action": action,
            "keys": list(objects),
            "objects": there[:20],
            "more": max(0, len(there) - 20),
            "gone": len(objects) - len(there),
            "sentences": action.says(request, there) if action.says else (),
            "form": form,
            "typed": typed,
            "name": next(iter(objects)) if len(objects) == 1 else str(len(objects)),
            "next": page.back(request),
            "address": page.address("do", action.name),
        },
    )


def _tell(page: "Pages", request: HttpRequest, action: Action, answer: Answer) -> None:
    level = messages.SUCCESS
    if answer.skipped:
        level = messages.WARNING if answer.done else messages.ERROR
    page.message_user(request, answer.sentence(action), level)


__all__ = ["perform_asked"]
