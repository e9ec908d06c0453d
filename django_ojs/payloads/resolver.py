"""Resolve the references among a job's arguments (payload-limits §5.3), in the worker.

Before the handler is called, on its thread and within its time; outside of any transaction. What
is stored of the job keeps its references.
"""

import io
import tempfile
from collections.abc import Sequence
from types import TracebackType
from typing import IO, Any, Self
from uuid import UUID

from django_ojs.conf import settings
from django_ojs.payloads import offload, schemes
from django_ojs.payloads.parameters import Kind, Kinds, PayloadFile, PayloadStream
from django_ojs.payloads.reader import Budget, Reader, too_large
from django_ojs.payloads.reference import Reference, is_reference
from django_ojs.payloads.schemes import s3
from django_ojs.spec import json
from django_ojs.spec.errors import InvalidPayload, PayloadRefused


def is_needed(args: Sequence[Any], kinds: Kinds) -> bool:
    """Say whether a handler can be called with these arguments only once they are resolved."""
    return not kinds.plain or any(is_reference(arg) for arg in args)


class Resolved:
    """The arguments of one run, resolved; as a context, it lets go of streams and files."""

    def __init__(self, job_id: UUID, args: Sequence[Any], kinds: Kinds) -> None:
        self._job_id = job_id
        self._readers: list[Reader] = []
        self._streams: list[PayloadStream] = []
        self._files: list[PayloadFile] = []
        try:
            self.args = [self._resolve(i, arg, kinds.at(i)) for i, arg in enumerate(args)]
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def finish(self) -> None:
        """Check what the handler has left of its streams. Raises what was wrong with one."""
        for reader in self._readers:
            reader.finish()

    def close(self) -> None:
        """Let go of streams and files."""
        for reader in self._readers:
            reader.abandon()
        for stream in self._streams:
            stream.close()
        for file in self._files:
            file.close()

    def _resolve(self, index: int, arg: Any, kind: Kind) -> Any:
        place = f"args[{index}]"
        if not is_reference(arg):
            return arg if kind is Kind.VALUE else self._inline(arg, place, kind)
        reference = Reference.parse(arg, place)
        values = settings()
        most = values.payload_max_bytes if kind is Kind.VALUE else values.payload_max_file_bytes
        if reference.size is not None and reference.size > most:
            raise too_large(place, most)
        budget = Budget(values.payload_timeout.total_seconds())
        with budget:
            if offload.owns(reference.uri, self._job_id):
                # What was put there for this very job; that of another is not to be had this way.
                source = s3.open_(reference, place, budget, allowed=(offload.bucket(),))
            else:
                source = schemes.open_(reference, place, budget)
        reader = Reader(source, reference, place=place, most=most, budget=budget)
        return self._take(reader, place, kind)

    def _inline(self, arg: Any, place: str, kind: Kind) -> Any:
        # A parameter that takes payloads gets one, whether it was large enough to be elsewhere or
        # not.
        data = json.dumps(arg).encode()
        source, reference = io.BytesIO(data), Reference(uri="")
        reader = Reader(source, reference, place=place, most=len(data), budget=Budget(60))
        return self._take(reader, place, kind)

    def _take(self, reader: Reader, place: str, kind: Kind) -> Any:
        self._readers.append(reader)
        if kind is Kind.STREAM:
            self._streams.append(PayloadStream(reader))
            return self._streams[-1]
        if kind is Kind.FILE:
            # Removed by its own finalizer too, should the thread be stopped before it is known.
            file: IO[bytes] = tempfile.NamedTemporaryFile(prefix="ojs-")  # noqa: SIM115  # it is closed with the run
            self._files.append(PayloadFile(file, 0))
            while piece := reader.take():
                file.write(piece)
            file.flush()
            self._files[-1].size = reader.taken
            reader.close()
            return self._files[-1]
        data = bytearray()
        while piece := reader.take():
            data += piece
        reader.close()
        return _parsed(bytes(data), place)


def _parsed(data: bytes, place: str) -> Any:
    try:
        return json.loads(data, place=place, exact_integers=settings().exact_integers)
    except InvalidPayload as error:
        raise PayloadRefused(
            f"the payload of {place} is no value: {error}",
            hint="A parameter annotated ojs.PayloadFile or ojs.PayloadStream takes any bytes.",
        ) from None
