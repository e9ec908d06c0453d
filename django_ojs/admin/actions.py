"""The actions of the operator's pages: each action calls one operation of `operations/`.

An action runs by POST to `action/<name>/` with one `key` per object. An action that needs
confirmation shows its confirmation page first. The permission is checked again when it runs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.db import DatabaseError
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, ngettext_lazy

from django_ojs.admin.formatting import StrOrPromise
from django_ojs.spec.errors import OJSError
from django_ojs.spec.scopes import Scope

#: The most objects that one request may change; for more, there are bulk operations.
MAX_OBJECTS: Final = 500

#: A message names at most this many different reasons, and only counts the others.
_MAX_REASONS: Final = 3


Run = Callable[[HttpRequest, Any, Mapping[str, Any]], str]


class Skipped(Exception):
    """Raised by an action that leaves an object unchanged; the text is the reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """An action on one object, or on several if `multiple`.

    `run(request, object, values)` changes one object and returns what it did, in the language of
    the user. It raises OJSError or `Skipped` if it cannot. `done` counts objects in messages
    ("%(count)d paused").

    `consequences(request, objects)` are the sentences of the confirmation page; `in_force(objects)`
    are rows for it, each with a name, the value in force, its source, and the values that it hides;
    `choices(objects)` are the texts of its button and of the link that goes back, where the label
    alone would be ambiguous. If `confirm_name`, the user has to type the name of the object.

    `applies_to(object)` says whether the page of an object has the button; the operation itself
    rejects other objects.
    """

    name: str
    label: StrOrPromise
    done: StrOrPromise
    scope: Scope
    run: Run
    consequences: Callable[[HttpRequest, Sequence[Any]], Sequence[str]] | None = None
    in_force: Callable[[Sequence[Any]], Sequence[tuple[StrOrPromise, ...]]] | None = None
    choices: Callable[[Sequence[Any]], tuple[str, str]] | None = None
    form: type[forms.Form] | None = None
    initial: Callable[[Any], Mapping[str, Any]] | None = None
    confirm_name: bool = False
    destructive: bool = False
    multiple: bool = True
    applies_to: Callable[[Any], bool] = lambda _: True

    @classmethod
    def pause(cls, run: Run, **options: Any) -> "Action":
        """Return the action *Pause* of an object that can stop jobs from starting."""
        return cls(
            name="pause",
            label=gettext_lazy("Pause"),
            done=ngettext_lazy("%(count)d paused", "%(count)d paused", "count"),
            scope=Scope.OPERATOR,
            run=run,
            **options,
        )

    @classmethod
    def resume(cls, run: Run, **options: Any) -> "Action":
        """Return the action *Resume*, which ends what *Pause* began."""
        return cls(
            name="resume",
            label=gettext_lazy("Resume"),
            done=ngettext_lazy("%(count)d resumed", "%(count)d resumed", "count"),
            scope=Scope.OPERATOR,
            run=run,
            **options,
        )

    @property
    def needs_confirmation(self) -> bool:
        return self.consequences is not None or self.form is not None or self.confirm_name

    def problem_with(self, keys: Sequence[str]) -> str | None:
        """Return why the action cannot run on this many objects, or None if it can."""
        if not keys:
            return _("Nothing was selected.")
        if len(keys) > 1 and not self.multiple:
            return _("Select one: this action runs on one object at a time.")
        if len(keys) > MAX_OBJECTS:
            return _("Select at most %(limit)d.") % {"limit": MAX_OBJECTS}
        return None


@dataclass(kw_only=True, slots=True)
class ActionResult:
    """`done` are objects with what was done to each, `skipped` are keys with their reasons."""

    done: list[tuple[Any, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)

    @property
    def level(self) -> int:
        if not self.skipped:
            return messages.SUCCESS
        return messages.WARNING if self.done else messages.ERROR

    def message(self, action: Action) -> str:
        """Return one line: what was done, how many were skipped, and why."""
        if len(self.done) == 1 and not self.skipped:
            return self.done[0][1]
        done = str(action.done % {"count": len(self.done)})
        if not self.skipped:
            return f"{done}."
        reasons = list(dict.fromkeys(reason for _key, reason in self.skipped))
        more = len(reasons) - _MAX_REASONS
        values = {
            "done": done,
            "count": len(self.skipped),
            "reasons": " ".join(reasons[:_MAX_REASONS]),
            "more": more,
        }
        if more <= 0:
            # Translators: `done` is such as "3 cancelled".
            return _("%(done)s, %(count)d skipped: %(reasons)s") % values
        text = ngettext(
            "%(done)s, %(count)d skipped: %(reasons)s (and %(more)d other reason)",
            "%(done)s, %(count)d skipped: %(reasons)s (and %(more)d other reasons)",
            more,
        )
        return text % values


def perform(
    action: Action,
    request: HttpRequest,
    objects: Mapping[str, Any],
    values: Mapping[str, Any],
) -> ActionResult:
    """Run an action on each object; None stands for an object that does not exist."""
    result = ActionResult()
    for key, obj in objects.items():
        if obj is None:
            result.skipped.append((key, _("It does not exist any more.")))
            continue
        try:
            result.done.append((obj, action.run(request, obj, values)))
        except OJSError as error:
            result.skipped.append((key, error.message))
        except Skipped as reason:
            result.skipped.append((key, str(reason)))
        except DatabaseError:
            result.skipped.append((key, _("The database was busy; try again.")))
    return result
