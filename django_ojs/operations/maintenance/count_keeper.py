"""Fold the changes of the counts by queue and state."""

from django_ojs.storage.figures import counts


class CountKeeper:
    """Two maintenance steps for the counts; the second runs when the first changed something."""

    def __init__(self) -> None:
        self._folded = 0

    def fold(self) -> int:
        """Fold the changes into the counts. Return how many changes there were."""
        folded = counts.fold()
        self._folded += folded
        return folded

    def vacuum_counts(self) -> int:
        """Release the space of folded changes."""
        if self._folded:
            counts.vacuum()
        self._folded = 0
        return 0
