"""How many jobs to claim at a time: many short ones, but long ones only for free slots."""

#: Seconds that a claimed job may wait for a slot: too few to delay its start noticeably, and enough
#: that a no-op job costs a hundredth of a claim.
MAX_SLOT_WAIT = 0.03

#: A larger claim is hardly faster, and its jobs wait longer.
MAX_BATCH = 400

#: Weight of the newest duration in the moving average, which follows a change of the mix within
#: some ten jobs.
_WEIGHT = 0.2


class ClaimSizer:
    """Derives the size of a claim from a moving average of the jobs' durations."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._average: float | None = None
        # How many jobs the last claim returned, if none of them has a handler here.
        self._passed_by = 0

    def pass_by(self, number: int) -> None:
        """Note how many jobs without a handler here a claim returned, if it returned no others.

        They take no slot. The next claim takes twice as many, so that jobs behind thousands of them
        do not wait for as many claims.
        """
        self._passed_by = number

    def record(self, duration: float) -> None:
        """Add the duration of a job, in seconds, to the average."""
        if self._average is None or duration > self._average * 10:
            # A long job among short ones counts in full at once: otherwise a large batch would wait
            # behind more long jobs.
            self._average = duration
        else:
            self._average += _WEIGHT * (duration - self._average)

    @property
    def target(self) -> int:
        """How many jobs to have in flight, running ones included."""
        if self._average is None:
            return self.slots
        prefetched = self.slots * MAX_SLOT_WAIT / max(self._average, 1e-6)
        return self.slots + min(MAX_BATCH, int(prefetched))

    def claim_size(self, busy: int) -> int:
        """Return how many jobs to claim: 0 while enough are in flight, to claim in batches."""
        target = self.target
        if busy > target // 2 and busy >= self.slots:
            return 0
        return min(MAX_BATCH, max(target - busy, 2 * self._passed_by))
