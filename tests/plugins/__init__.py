"""What makes the suite fast: tiers, order, databases made once, a teardown without a flush."""
