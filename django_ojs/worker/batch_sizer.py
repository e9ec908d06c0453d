"""How many jobs to claim at a time.

Many while they are short; just what the slots can take when they are long.
"""

#: A claimed job may wait this long behind others before its turn. Short enough that nobody notices;
#: long enough that a no-op job costs a hundredth of a claim.
PATIENCE = 0.03

#: More than this in one statement gains nothing.
LARGEST = 200

#: Weight of the newest batch in the running average: a change of the mix is felt within some ten
#: jobs.
_WEIGHT = 0.2


class Gauge:
    """Watches how long jobs take, and says how many to have in hand."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._average: float | None = None

    def saw(self, duration: float) -> None:
        """Note how long a job took, in seconds."""
        if self._average is None or duration > self._average * 10:
            # A long job among short ones: believe it at once, or the next batch waits behind its
            # like.
            self._average = duration
        else:
            self._average += _WEIGHT * (duration - self._average)

    @property
    def target(self) -> int:
        """How many jobs to have in hand, running ones included."""
        if self._average is None:
            return self.slots
        ahead = self.slots * PATIENCE / max(self._average, 1e-6)
        return self.slots + min(LARGEST, int(ahead))

    def wanted(self, in_hand: int) -> int:
        """How many to claim now; 0 while enough are in hand, so that claims come in batches."""
        target = self.target
        if in_hand > target // 2 and in_hand >= self.slots:
            return 0
        return min(LARGEST, target - in_hand)
