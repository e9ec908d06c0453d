"""Jobs that are alike: one envelope and the arguments of each, until single jobs are needed."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, final, overload
from uuid import UUID

from django_ojs.spec import ids, json
from django_ojs.spec.envelope.model import Envelope
from django_ojs.spec.json import JSON


@final
class AlikeJobs(Sequence[Envelope]):
    """New jobs that differ only in their ids and arguments; no other value depends on these.

    Code that changes all of them changes `common` (see `distinct`). An item is a new envelope each
    time it is read, so code that changes single jobs needs a list of them.
    """

    __slots__ = ("args", "common", "ids", "sizes", "text")

    def __init__(self, common: Envelope, args: Sequence[list[JSON]]) -> None:
        self.common = common
        self.args = args
        self.ids: Sequence[UUID] = ids.many(len(args))
        #: The arguments as the JSON of one array, and the size of each job's in bytes; see
        #: `encode`.
        self.text = ""
        self.sizes: Sequence[int] = ()

    @classmethod
    def of(cls, common: Envelope, args: Sequence[list[JSON]]) -> "AlikeJobs | None":
        """Return the jobs, or None if the key of a policy may depend on the arguments."""
        if common.unique is not None or common.rate_limit is not None:
            return None
        return cls(common, args)

    def encode(self, *, exact_integers: bool) -> None:
        """Check the arguments, and set `text` and `sizes`. Raises InvalidPayload."""
        self.text, self.sizes = json.dumps_lists(self.args, exact_integers=exact_integers)

    def __len__(self) -> int:
        return len(self.args)

    @overload
    def __getitem__(self, index: int) -> Envelope: ...
    @overload
    def __getitem__(self, index: slice) -> list[Envelope]: ...
    def __getitem__(self, index: int | slice) -> Envelope | list[Envelope]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        args: list[Any] = self.args[index]
        sent = self.common.document
        return replace(
            self.common,
            id=self.ids[index],
            args=args,
            # Each job gets a copy, so that a change of its metadata does not change the others.
            meta=copy.deepcopy(self.common.meta),
            document=None if sent is None else {**sent, "args": args},
        )


# `type(…) is` is used here and elsewhere, because `isinstance` takes ten times as long for abstract
# classes.
def distinct(envelopes: Sequence[Envelope]) -> Sequence[Envelope]:
    """Return the envelopes in which to set an attribute of all jobs: one if the jobs are alike."""
    return (envelopes.common,) if type(envelopes) is AlikeJobs else envelopes
