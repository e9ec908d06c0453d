"""The shop as a Django app."""

from django.apps import AppConfig


class ShopConfig(AppConfig):
    """A kitchenware shop whose slow work runs as jobs."""

    name = "example_project.shop"
    label = "shop"
    verbose_name = "Shop"
