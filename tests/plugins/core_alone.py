"""A plugin for a test run of its own: the core without any extension, on the whole schema.

`python -m pytest -p tests.plugins.core_alone …`: what is registered when the apps are ready is
taken out before the first test.
"""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def no_extension_is_installed() -> None:
    from django_ojs.hooks import registry

    for extension in registry.extensions():
        registry.remove(extension)
    assert not registry.numbers()
