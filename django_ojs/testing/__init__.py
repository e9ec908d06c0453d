"""Test the jobs of a project: assert what was enqueued, run it, control the clock and failures.

There are mixins for TestCase, and fixtures for pytest (`django_ojs.pytest_plugin`); both give the
same `TestContext`. The names and the three modes come from ojs-testing.
"""

from django_ojs.testing.case import OJSFakeMixin, OJSInlineMixin, OJSTestMixin
from django_ojs.testing.context import TestContext, fake, inline, real
from django_ojs.testing.drain import Drained, DrainTimeout
from django_ojs.testing.recorder import FakeModeError

__all__ = [
    "DrainTimeout",
    "Drained",
    "FakeModeError",
    "OJSFakeMixin",
    "OJSInlineMixin",
    "OJSTestMixin",
    "TestContext",
    "fake",
    "inline",
    "real",
]
