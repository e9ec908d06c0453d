"""What a handler may ask for in place of a parsed payload, by the annotation of its parameter."""

import inspect
import io
from collections.abc import Iterable
from enum import Enum, auto
from typing import IO, Any

from django_ojs.payloads.reader import CHUNK, Reader


class PayloadStream(io.BufferedReader):
    """A payload as an open binary stream, read once while it comes.

    Its size and checksum are known at its end: `read` then raises what is wrong. What the handler
    has not read is read when it returns, and the job fails if it is not what the reference says.
    """

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader, CHUNK)
        self.reader = reader

    def __del__(self) -> None:
        # Nobody has it any more: what is left need not be read.
        if hasattr(self, "reader"):
            self.reader.abandon()
        super().__del__()


class PayloadFile:
    """A payload in a temporary file, complete and checked; gone when the handler has returned."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self.size = size

    @property
    def path(self) -> str:
        """Where it is."""
        return self._file.name

    def __fspath__(self) -> str:
        return self._file.name

    def open(self) -> IO[bytes]:
        """Open it for reading."""
        return open(self._file.name, "rb")

    def close(self) -> None:
        """Remove it. The worker calls this."""
        self._file.close()


class Kind(Enum):
    """How a parameter takes a payload."""

    VALUE = auto()
    STREAM = auto()
    FILE = auto()


_KINDS = {PayloadStream: Kind.STREAM, PayloadFile: Kind.FILE}
_NAMES = {found.__name__: kind for found, kind in _KINDS.items()}


class Kinds:
    """The kinds of a handler's parameters, by position."""

    def __init__(self, parameters: Iterable[inspect.Parameter]) -> None:
        known = list(parameters)
        self._kinds = [_kind(p.annotation) for p in known]
        rest = [p for p in known if p.kind is inspect.Parameter.VAR_POSITIONAL]
        self._rest = _kind(rest[0].annotation) if rest else Kind.VALUE
        #: Whether all of them take values.
        self.plain = set(self._kinds) <= {Kind.VALUE}

    def at(self, index: int) -> Kind:
        """Return the kind of a position."""
        return self._kinds[index] if index < len(self._kinds) else self._rest


def _kind(annotation: Any) -> Kind:
    if isinstance(annotation, str):
        # As with JobContext: resolving it would import what may be for type checkers only.
        return _NAMES.get(annotation.split(".")[-1].strip("'\""), Kind.VALUE)
    return _KINDS.get(annotation, Kind.VALUE) if isinstance(annotation, type) else Kind.VALUE
