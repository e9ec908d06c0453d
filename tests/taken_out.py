"""An app that takes extensions out, for processes of a site that does not have them."""

from __future__ import annotations

import os

from django.apps import AppConfig

from django_ojs.hooks import registry


class TakenOut(AppConfig):
    """Takes out those that OJS_TEST_TAKEN_OUT names."""

    name = "tests.taken_out"
    label = "taken_out"

    def ready(self) -> None:
        names = os.environ["OJS_TEST_TAKEN_OUT"].split(",")
        found = [each for each in registry.extensions() if each.name in names]
        assert len(found) == len(names)
        for each in found:
            registry.remove(each)
