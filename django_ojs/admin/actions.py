"""What an operator can do on a page: one action is one operation of `operations/`.

An action is asked for at `do/<name>/?key=…`, of one object or of several. A page that says what
will happen comes first where it `asks`; the permission is checked again when it runs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django import forms
from django.db import DatabaseError
from django.http import HttpRequest

from django_ojs.spec.errors import OJSError
from django_ojs.spec.scopes import Scope

#: Objects of one request. More than these are for a bulk operation.
MOST: Final = 500

#: Reasons that an answer names; what was skipped beyond these is counted.
_REASONS: Final = 3


class Skipped(Exception):
    """Raised by an action that leaves an object as it is; the text says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """One thing to do.

    `run(request, object, values)` does it to one object and returns what happened, for the log and
    for the answer to a single action. What it cannot do it says with an OJSError or `Skipped`.
    `done` is the participle of the answers. `says(request, objects)` are the sentences of the page
    that asks; an `asks` of None asks nothing and runs with the first click. `typed`: the name of
    the object has to be typed in. `applies(object)`: whether a button is offered; to run it anyway
    is refused by the operation.
    """

    name: str
    label: str
    done: str
    needs: Scope
    run: Callable[[HttpRequest, Any, Mapping[str, Any]], str]
    says: Callable[[HttpRequest, Sequence[Any]], Sequence[str]] | None = None
    form: type[forms.Form] | None = None
    initial: Callable[[Any], Mapping[str, Any]] | None = None
    typed: bool = False
    destructive: bool = False
    many: bool = True
    applies: Callable[[Any], bool] = lambda _: True

    @property
    def asks(self) -> bool:
        """Whether a page comes first."""
        return self.says is not None or self.form is not None or self.typed


@dataclass(kw_only=True, slots=True)
class Answer:
    """What became of the objects that were meant."""

    done: list[tuple[Any, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def sentence(self, action: Action) -> str:
        """Say it in one line: what was done, what was skipped, and why."""
        if len(self.done) == 1 and not self.skipped:
            return self.done[0][1]
        text = f"{len(self.done)} {action.done}"
        if self.skipped:
            reasons = list(dict.fromkeys(reason for _, reason in self.skipped))
            told = " ".join(reasons[:_REASONS])
            more = f" (and {len(reasons) - _REASONS} other reasons)" * (len(reasons) > _REASONS)
            return f"{text}, {len(self.skipped)} skipped: {told}{more}"
        return f"{text}."


def perform(
    action: Action, request: HttpRequest, objects: Mapping[str, Any], values: Mapping[str, Any]
) -> Answer:
    """Do it to each object; None is one that is gone."""
    answer = Answer()
    for key, each in objects.items():
        if each is None:
            answer.skipped.append((key, "It is not there any more."))
            continue
        try:
            answer.done.append((each, action.run(request, each, values)))
        except OJSError as error:
            answer.skipped.append((key, error.message))
        except Skipped as reason:
            answer.skipped.append((key, str(reason)))
        except DatabaseError:
            answer.skipped.append((key, "The database was busy; try it once more."))
    return answer


class Typed(forms.Form):
    """The name of what is about to go, typed in."""

    typed = forms.CharField(
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"})
    )

    def __init__(self, *args: Any, name: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._name = name
        self.fields["typed"].label = f"Type {name} to confirm"

    def clean_typed(self) -> str:
        """Compare."""
        typed = str(self.cleaned_data["typed"])
        if typed != self._name:
            raise forms.ValidationError("This is not the name.")
        return typed


__all__ = ["MOST", "Action", "Answer", "Skipped", "Typed", "perform"]
