"""Which claims consider an available job: the values of `Job.hold`.

0 stands for all claims of its queue. An extension that keeps jobs from some claims has two values,
computed from its number. With the first, the job is open to the claims that apply the rule of the
extension; with the second, no claim considers it until the extension opens it. The values of open
jobs are less than those of held jobs, so a claim that searches for the next one reads no held job.

A job has one value, and several extensions may hold it. Each stores for itself which jobs it holds.
When the extension whose value a job has opens it, the others are asked, and the job gets the value
of the next one that holds it (see `storage.holds`).
"""

from typing import Final

#: All claims of its queue consider the job.
FREE: Final = 0
#: Values below this are open to some claims. The numbers of extensions are below it, too.
FIRST_HELD: Final = 64


def open_to(number: int) -> int:
    """Return the value for claims that apply the rule of the extension with this number."""
    return number


def held_by(number: int) -> int:
    """Return the value that no claim considers, until the extension with this number opens it."""
    return FIRST_HELD + number


def owner_of(hold: int) -> int:
    """Return the number of the extension whose value this is."""
    return hold % FIRST_HELD


def numbers_of(bits: int) -> list[int]:
    """Return the numbers of the extensions that have these bits."""
    return [number for number in range(FIRST_HELD) if bits >> number & 1]
