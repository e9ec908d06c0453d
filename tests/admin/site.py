"""Another admin site, under another URL prefix."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from django_ojs.admin import register

site = admin.AdminSite(name="operations")
register(site)

urlpatterns = [path("back/office/", site.urls)]
