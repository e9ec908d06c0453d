"""A language of the tests: a catalogue that is written for them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from django.test import override_settings

_HEADER = "Content-Type: text/plain; charset=UTF-8\nPlural-Forms: nplurals=2; plural=(n != 1);\n"


@contextmanager
def german(folder: Path, texts: Mapping[str, str]) -> Iterator[None]:
    """Set the language of the site to German, in which these texts are translated.

    Of a plural, the key and the value have both forms, with a null character between them.
    """
    catalogue = folder / "de" / "LC_MESSAGES" / "django.mo"
    catalogue.parent.mkdir(parents=True)
    catalogue.write_bytes(_compiled({"": _HEADER, **texts}))
    with override_settings(LANGUAGE_CODE="de", LOCALE_PATHS=[str(folder)]):
        yield


def _compiled(texts: Mapping[str, str]) -> bytes:
    """Return a catalogue in the binary format of gettext."""
    pairs = [(key.encode(), text.encode()) for key, text in sorted(texts.items())]
    start = 28 + 16 * len(pairs)
    data = b"".join(part + b"\0" for part in [*(k for k, _ in pairs), *(t for _, t in pairs)])
    tables, at = [], start
    for part in [*(key for key, _ in pairs), *(text for _, text in pairs)]:
        tables += [len(part), at]
        at += len(part) + 1
    head = struct.pack("<7I", 0x950412DE, 0, len(pairs), 28, 28 + 8 * len(pairs), 0, 28)
    return head + struct.pack(f"<{len(tables)}I", *tables) + data
