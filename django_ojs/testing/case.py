"""Mixins for Django's test cases."""

import unittest
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from django.core.exceptions import ImproperlyConfigured
from django.test import SimpleTestCase

from django_ojs.testing.context import Mode, TestContext, opened

if TYPE_CHECKING:
    _Base = unittest.TestCase
else:
    _Base = object


class OJSTestMixin(_Base):
    """Gives each test `self.ojs`, a TestContext in real mode.

    `class OrderTests(OJSTestMixin, TestCase)`, or TransactionTestCase.
    """

    ojs_mode: ClassVar[Mode] = "real"
    ojs: TestContext

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        order: Sequence[type] = cls.__mro__
        if unittest.TestCase not in order:
            return
        if order.index(OJSTestMixin) > order.index(unittest.TestCase):
            raise ImproperlyConfigured(
                f"{cls.__name__} must name {_mixin_of(cls)} before its test case class."
            )
        has_no_database = SimpleTestCase in order and not getattr(cls, "databases", ())
        if cls.ojs_mode != "fake" and has_no_database:
            raise ImproperlyConfigured(
                f"{cls.__name__} is a SimpleTestCase, which has no database: use TestCase, or "
                "OJSFakeMixin, which records jobs in memory."
            )

    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        """Run the test, inside its transaction and around `setUp`, in a TestContext."""
        test = getattr(self, self._testMethodName)
        if any(getattr(each, "__unittest_skip__", False) for each in (type(self), test)):
            return super().run(result)
        with opened(self.ojs_mode) as self.ojs:
            return super().run(result)


class OJSFakeMixin(OJSTestMixin):
    """Gives each test `self.ojs` in fake mode, in a SimpleTestCase too."""

    ojs_mode = "fake"


class OJSInlineMixin(OJSTestMixin):
    """Gives each test `self.ojs` in inline mode."""

    ojs_mode = "inline"


def _mixin_of(cls: type) -> str:
    return next(each.__name__ for each in cls.__mro__ if each.__module__ == __name__)
