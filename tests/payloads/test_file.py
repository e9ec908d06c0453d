"""file://, which leads to regular files below a folder, and nowhere else."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from django_ojs.extensions.payloads.reference import SCHEMES
from django_ojs.spec.errors import PayloadRejected, PayloadUnavailable
from tests.payloads.resolving import value


@pytest.fixture
def root(tmp_path: Path, settings: Any) -> Path:
    folder = tmp_path / "root"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "a b.json").write_text('["inside"]')
    (tmp_path / "secret.json").write_text('["outside"]')
    settings.OJS = settings.OJS | {"PAYLOAD_FILE_ROOTS": [str(folder)], "PAYLOAD_FILES": True}
    return folder


@pytest.mark.parametrize("prefix", ["file://", "file://localhost", "FILE://"])
def test_a_file_below_a_root_is_read(root: Path, prefix: str) -> None:
    assert value(f"{prefix}{root}/inner/a%20b.json") == ["inside"]


def test_a_root_may_itself_be_a_link(root: Path, tmp_path: Path, settings: Any) -> None:
    (tmp_path / "link").symlink_to(root)
    settings.OJS = settings.OJS | {"PAYLOAD_FILE_ROOTS": [str(tmp_path / "link")]}
    assert value(f"file://{tmp_path}/link/inner/a%20b.json") == ["inside"]


def test_without_debug_it_needs_a_setting(root: Path, settings: Any) -> None:
    uri = f"file://{root}/inner/a%20b.json"
    settings.OJS = settings.OJS | {"PAYLOAD_FILES": False}
    with pytest.raises(PayloadRejected, match="PAYLOAD_FILES"):
        value(uri)
    settings.DEBUG = True
    assert value(uri) == ["inside"]
    settings.OJS = settings.OJS | {"PAYLOAD_FILE_ROOTS": []}
    with pytest.raises(PayloadRejected, match="PAYLOAD_FILE_ROOTS"):
        value(uri)


@pytest.mark.parametrize(
    "path",
    [
        "{root}/../secret.json",
        "{root}/inner/../../secret.json",
        "{root}/inner/..%2f..%2fsecret.json",
        "{root}/%2e%2e/secret.json",
        "{root}/./../secret.json",
        "{outside}/secret.json",
        "{root}x/secret.json",
        "{root}",
        "{root}/",
        "/etc/passwd",
        "/proc/self/environ",
        "/dev/zero",
        "//etc/passwd",
        "etc/passwd",
        "host.test{root}/inner/a%20b.json",
        "{root}/a%00b",
    ],
)
def test_a_path_out_of_the_root_is_rejected(root: Path, path: str) -> None:
    uri = "file://" + path.format(root=root, outside=root.parent)
    with pytest.raises(PayloadRejected):
        value(uri)


def link_to_file(root: Path) -> str:
    (root / "link").symlink_to(root.parent / "secret.json")
    return "link"


def link_to_folder(root: Path) -> str:
    (root / "out").symlink_to(root.parent)
    return "out/secret.json"


def link_that_stays_inside(root: Path) -> str:
    (root / "link").symlink_to(root / "inner" / "a b.json")
    return "link"


def fifo(root: Path) -> str:
    os.mkfifo(root / "fifo")
    return "fifo"


def folder(root: Path) -> str:
    return "inner"


def unix_socket(root: Path) -> str:
    here = os.getcwd()
    os.chdir(root)  # The path of a socket is short.
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("socket")
    finally:
        os.chdir(here)
    return "socket"


def file_as_folder(root: Path) -> str:
    return "inner/a%20b.json/x"


@pytest.mark.parametrize(
    "make",
    [
        link_to_file,
        link_to_folder,
        link_that_stays_inside,
        fifo,
        folder,
        unix_socket,
        file_as_folder,
    ],
)
def test_what_is_no_regular_file_is_rejected_at_once(
    root: Path, make: Callable[[Path], str]
) -> None:
    name = make(root)
    with pytest.raises(PayloadRejected):
        value(f"file://{root}/{name}")


def test_a_device_is_rejected(settings: Any) -> None:
    settings.OJS = settings.OJS | {"PAYLOAD_FILE_ROOTS": ["/dev"], "PAYLOAD_FILES": True}
    for name in ("zero", "null", "random", "tty", "stdin", "fd/0"):
        with pytest.raises((PayloadRejected, PayloadUnavailable)):
            value(f"file:///dev/{name}")


def test_a_file_that_is_not_there_may_come(root: Path) -> None:
    with pytest.raises(PayloadUnavailable):
        value(f"file://{root}/none.json")


@pytest.mark.parametrize("uri", ["ftp://a/b", "http://a/b", "data:,x", "gopher://a", "s3:/b/k"])
def test_another_scheme_is_rejected(uri: str, connections_made: list[Any]) -> None:
    with pytest.raises(PayloadRejected, match=", ".join(SCHEMES)):
        value(uri)
    assert connections_made == []
