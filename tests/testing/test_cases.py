"""The mixins, in Django's test cases as unittest runs them."""

from __future__ import annotations

import unittest
from datetime import UTC, datetime
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.test import SimpleTestCase, TestCase, TransactionTestCase
from django.utils import timezone

import django_ojs
from django_ojs.models import Job
from django_ojs.testing import Drained, FakeModeError, OJSFakeMixin, OJSInlineMixin, OJSTestMixin
from tests.testapp.testing_jobs import asave, send

pytestmark = pytest.mark.both


class Rows(OJSTestMixin, TestCase):
    @classmethod
    def setUpTestData(cls) -> None:
        send.enqueue("before")

    def setUp(self) -> None:  # Without a call of super().
        send.enqueue("ada")

    def test_the_jobs_of_set_up_are_the_test_s(self) -> None:
        self.ojs.assert_enqueued(send, args=["ada"], count=1)
        self.ojs.refute_enqueued(send, args=["before"])
        assert self.ojs.drain() == Drained(completed=2)

    def test_each_test_has_its_own(self) -> None:
        send.enqueue("eve")
        self.ojs.assert_enqueued(send, count=2)
        self.ojs.freeze(datetime(2036, 1, 1, tzinfo=UTC))

    def test_the_clock_goes_on(self) -> None:
        assert timezone.now() < datetime(2036, 1, 1, tzinfo=UTC)

    async def test_asynchronous(self) -> None:
        await asave.aenqueue("ada")
        assert await self.ojs.adrain() == Drained(completed=3)
        assert await self.ojs.aperform(asave, "eve") == "eve, attempt 1"


class Committed(OJSTestMixin, TransactionTestCase):
    def test_rows_are_committed(self) -> None:
        send.enqueue("ada")
        assert self.ojs.drain() == Drained(completed=1)


class Fake(OJSFakeMixin, SimpleTestCase):
    def test_no_database_is_needed(self) -> None:
        send.enqueue("ada")
        self.ojs.assert_enqueued(send, args=["ada"])

    async def test_asynchronous(self) -> None:
        await send.aenqueue("ada")
        self.ojs.assert_enqueued(send, args=["ada"])
        with pytest.raises(FakeModeError):
            await self.ojs.adrain()


class Inline(OJSInlineMixin, TestCase):
    def test_the_handler_has_run(self) -> None:
        send.enqueue("ada")
        self.ojs.assert_completed(send, count=1)

    async def test_asynchronous(self) -> None:
        await asave.aenqueue("ada")
        await sync_to_async(self.ojs.assert_completed)(asave)


@pytest.mark.requirement("TST-006")
def test_after_a_test_the_client_is_the_real_one(db: None) -> None:
    class Faked(OJSFakeMixin, unittest.TestCase):
        def runTest(self) -> None:
            send.enqueue("fake")
            assert len(self.ojs.enqueued()) == 1

    result = unittest.TestResult()
    Faked().run(result)
    assert result.wasSuccessful(), result.failures + result.errors
    assert result.testsRun == 1
    assert django_ojs.get_job(send.enqueue("ada").id).args == ["ada"]
    assert Job.objects.count() == 1


def test_a_failure_shows_the_line_of_the_test() -> None:
    class Fails(OJSFakeMixin, unittest.TestCase):
        def runTest(self) -> None:
            self.ojs.assert_enqueued(send)

    result = unittest.TestResult()
    Fails().run(result)
    [(_, text)] = result.failures
    assert "self.ojs.assert_enqueued(send)" in text
    assert "django_ojs/testing" not in text


def test_a_skipped_test_touches_no_database() -> None:
    class Skipped(OJSTestMixin, unittest.TestCase):
        @unittest.skip("as an example")
        def runTest(self) -> None:
            raise AssertionError

    result = unittest.TestResult()
    Skipped().run(result)
    assert (len(result.skipped), result.failures, result.errors) == (1, [], [])


@pytest.mark.parametrize(
    ("bases", "words"),
    [
        ((OJSTestMixin, SimpleTestCase), "which has no database: use TestCase, or OJSFakeMixin"),
        ((OJSInlineMixin, SimpleTestCase), "which has no database: use TestCase, or OJSFakeMixin"),
        ((TestCase, OJSTestMixin), "must name OJSTestMixin before its test case class"),
        ((TestCase, OJSFakeMixin), "must name OJSFakeMixin before its test case class"),
    ],
)
def test_a_class_that_cannot_work_says_so(bases: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=words):
        type("Wrong", bases, {})
