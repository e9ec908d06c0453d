"""The picture of the architecture shows the imports that there are."""

from __future__ import annotations

from tests.docs.architecture_picture import PARTS, PICTURE, arrows, picture, shortest


def test_the_picture_is_drawn_from_the_imports() -> None:
    assert PICTURE.read_text() == picture(), "python -m tests.docs.architecture_picture draws it"


def test_an_arrow_that_others_imply_is_left_out() -> None:
    found = {"a": set[str](), "b": {"a"}, "c": {"a", "b"}, "d": {"a"}}
    assert sorted(shortest(found)) == [("b", "a"), ("c", "b"), ("d", "a")]


def test_each_part_but_the_lowest_stands_on_another() -> None:
    lowest, *others = PARTS
    found = arrows()
    assert not found[lowest]
    assert all(found[part] for part in others)
