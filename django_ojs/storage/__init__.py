"""Where jobs are kept: one writer of state; what differs between databases is in `dialects`."""
