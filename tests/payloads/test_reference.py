"""References: what is one, and what is none."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs.extensions.payloads.reference import KEY, Reference, is_reference, payload_reference
from django_ojs.spec.errors import PayloadRejected
from tests.cases import together

DIGITS = {"sha256": 64, "sha384": 96, "sha512": 128}


def test_an_element_of_args_is_one_and_nothing_deeper() -> None:
    assert is_reference({KEY: "s3://b/k"})
    assert not is_reference([{KEY: "s3://b/k"}])
    assert not is_reference({"a": {KEY: "s3://b/k"}})
    assert not is_reference(KEY)


@pytest.mark.parametrize("name", ["size", "size_bytes"])
def test_both_spellings_of_the_size_are_read(name: str) -> None:
    assert Reference.parse({KEY: "s3://b/k", name: 7}, "args[0]").size == 7


@pytest.mark.requirement("PL-013")
@pytest.mark.parametrize("algorithm", DIGITS)
def test_a_checksum_is_read_in_either_case(algorithm: str) -> None:
    text = f"{algorithm}:{'A' * DIGITS[algorithm]}"
    reference = Reference.parse({KEY: "s3://b/k", "checksum": text}, "args[0]")
    assert reference.algorithm == algorithm
    assert reference.matches("a" * DIGITS[algorithm])
    assert not reference.matches("b" * DIGITS[algorithm])


@together(
    "wrong",
    [
        {KEY: None},
        {KEY: 5},
        {KEY: "s3://b/\x00"},
        {KEY: "s3://b/a b"},
        {KEY: "https://a\\b/"},
        {KEY: "s3://b/é"},
        {KEY: "s3://b/" + "k" * 5_000},
        {"size": -1},
        {"size": True},
        {"size": "1"},
        {"size": 1.5},
        {"checksum": ""},
        {"checksum": "sha256"},
        {"checksum": "sha256:abc"},
        {"checksum": "md5:" + "a" * 32},
        {"checksum": "sha1:" + "a" * 40},
        {"checksum": "sha256:" + "g" * 64},
        {"checksum": 5},
    ],
)
def test_what_is_ill_formed_is_rejected_by_name_and_without_its_value(wrong: Any) -> None:
    with pytest.raises(PayloadRejected) as caught:
        Reference.parse({KEY: "s3://bucket/secret"} | wrong, "args[3]")
    assert caught.value.message.startswith("args[3].")
    assert "secret" not in caught.value.message


def test_a_reference_can_be_made_in_python() -> None:
    text = "sha256:" + "0" * 64
    made = payload_reference("s3://bucket/key", size=3, checksum=text)
    assert made == {KEY: "s3://bucket/key", "size": 3, "checksum": text}
    with pytest.raises(PayloadRejected):
        payload_reference("ftp://host/file")
