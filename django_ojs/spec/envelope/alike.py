"""Jobs that are alike: one envelope, and the arguments of each, until each is needed."""

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
    """New jobs that differ in their ids and arguments only, and have no value made of these.

    What sets an attribute of all of them sets it in `common` (see `distinct`). An item is an
    envelope of its own, made when it is read: who changes single jobs needs a list of them.
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
        """Return the jobs; None where the arguments decide more of a job: the key of a policy."""
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
            # A change of the metadata of one is none of the others.
            meta=copy.deepcopy(self.common.meta),
            document=None if sent is None else {**sent, "args": args},
        )


# By `type(…) is`, here and elsewhere: `isinstance` takes ten times as long for abstract classes.
def distinct(envelopes: Sequence[Envelope]) -> Sequence[Envelope]:
    """Return the envelopes to set what the jobs get that have equal attributes: one for alike."""
    return (envelopes.common,) if type(envelopes) is AlikeJobs else envelopes
