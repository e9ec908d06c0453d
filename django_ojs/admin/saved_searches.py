"""Saved searches: a user names a search of jobs, and finds it again on each list."""

from typing import Any, Final

from django import forms
from django.http import HttpRequest
from django.utils.translation import gettext_lazy

from django_ojs.models import SavedSearch
from django_ojs.operations.jobs import search_query
from django_ojs.storage import database

#: Searches of one user.
MAX_SAVED: Final = 50


class SavedSearchForm(forms.Form):
    """A name, and a search that can be parsed."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=100)
    q = forms.CharField(label=gettext_lazy("Search"), max_length=search_query.MAX_LENGTH)

    def clean_q(self) -> str:
        text: str = self.cleaned_data["q"]
        if errors := search_query.parse(text).errors:
            raise forms.ValidationError(errors)
        return text


def of(request: HttpRequest) -> list[SavedSearch]:
    """Return the searches of a user, by name."""
    return list(SavedSearch.primary.filter(user=_user(request)).order_by("name")[:MAX_SAVED])


@database.write_transaction
def save(request: HttpRequest, name: str, query: str) -> bool:
    """Save a search; one of the same name is replaced. Return False if the user has too many."""
    mine = SavedSearch.primary.filter(user=_user(request))
    if mine.filter(name=name).update(query=query):
        return True
    if mine.count() >= MAX_SAVED:
        return False
    # Two requests at a time may save the same name.
    SavedSearch.primary.bulk_create(
        [SavedSearch(user=_user(request), name=name, query=query)], ignore_conflicts=True
    )
    return True


@database.write_transaction
def delete(request: HttpRequest, name: str) -> None:
    if "\0" not in name:
        SavedSearch.primary.filter(user=_user(request), name=name).delete()


def _user(request: HttpRequest) -> str:
    user: Any = request.user
    return str(user.pk)
