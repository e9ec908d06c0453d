"""A worker serves no routes: its system checks need not import the admin's and the API's."""

from __future__ import annotations

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
