"""How long ago a process has asked for something that any process may do."""

import time


class LastQuery:
    """When this process queried last, and found nothing due."""

    def __init__(self) -> None:
        self.at = float("-inf")

    def repeat(self, interval: float) -> bool:
        """Count a query as made now. Return False if the last one is not that many seconds ago."""
        now = time.monotonic()
        if now - self.at < interval:
            return False
        self.at = now
        return True

    def reset(self) -> None:
        """Query again the next time."""
        self.at = float("-inf")
