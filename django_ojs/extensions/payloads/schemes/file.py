"""file:///path: for development, and for sites whose workers share a file system."""

import os
import stat
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import unquote

from django.conf import settings as django_settings

from django_ojs.conf import of
from django_ojs.extensions.payloads.reader import Budget, Source
from django_ojs.extensions.payloads.reference import Reference
from django_ojs.extensions.payloads.settings import PayloadSettings
from django_ojs.spec.errors import PayloadRejected, PayloadUnavailable

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK is set, because opening a FIFO would wait for its writer.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


def open_(reference: Reference, field: str, budget: Budget) -> Source:
    """Open a regular file below one of PAYLOAD_FILE_ROOTS; no part of its path is a link."""
    values = of(PayloadSettings)
    if not (django_settings.DEBUG or values.payload_files):
        raise PayloadRejected(f"{field} is a file, and OJS['PAYLOAD_FILES'] is not True")
    host, slash, rest = reference.uri[len("file://") :].partition("/")
    path = PurePosixPath(unquote(slash + rest))
    if host not in ("", "localhost") or ".." in path.parts or "\0" in str(path):
        raise PayloadRejected(f"{field} must be file:// with an absolute path without ..")
    for root in values.payload_file_roots:
        if path.is_relative_to(root) and path != PurePosixPath(root):
            return _open_below(root, path.relative_to(root).parts, field)
    raise PayloadRejected(f"{field} is not below a folder that OJS['PAYLOAD_FILE_ROOTS'] names")


def _open_below(root: str, parts: tuple[str, ...], field: str) -> Source:
    # The path is opened part by part, and each part is kept open while the next is looked up. So a
    # concurrent change of folders or links cannot lead elsewhere.
    folder = -1
    try:
        # The root itself may be a link: the operator chose it.
        folder = os.open(os.path.realpath(root), _FOLDER)
        for part in parts[:-1]:
            inner = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        found = os.open(parts[-1], _FILE, dir_fd=folder)
    except FileNotFoundError:
        raise PayloadUnavailable(f"the file of {field} does not exist") from None
    except OSError:
        raise PayloadRejected(f"{field} cannot be opened, or is reached through a link") from None
    finally:
        if folder >= 0:
            os.close(folder)
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise PayloadRejected(f"{field} must be a regular file")
    return os.fdopen(found, "rb", buffering=0)
