"""The job types of tasks: what OJS allows, and never the same for two paths."""

from __future__ import annotations

from itertools import product

import pytest

from django_ojs.spec.envelope import check_type
from tests.tasks.names import job_type_of

#: Every name of up to four of these characters, which are those that the escapes use as well.
NAMES = [
    name
    for length in range(1, 5)
    for letters in product("axAX_0é", repeat=length)
    if (name := "".join(letters)).isidentifier()
]


@pytest.mark.parametrize(
    ("path", "job_type"),
    [
        ("shop.tasks.send_receipt", "shop.tasks.send_receipt"),
        ("shop.tasks.sendReceipt", "shop.tasks.send-receipt"),
        ("Shop.tasks._send", "x---shop.tasks.x--_send"),
        ("shop.tasks.Mails.send", "shop.tasks.x---mails.send"),
        ("shop.tasks.envoyé", "shop.tasks.envoy-0000e9"),
    ],
)
def test_a_path_is_its_type_where_ojs_allows_it(path: str, job_type: str) -> None:
    assert job_type_of(path) == job_type


def test_every_path_has_a_type_and_no_two_have_the_same() -> None:
    paths = [*NAMES, *(f"a.{name}" for name in NAMES), *(f"{name}.A" for name in NAMES)]
    types = {job_type_of(path) for path in paths}
    for job_type in types:
        check_type(job_type)
    assert len(types) == len(set(paths))
