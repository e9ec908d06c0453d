"""Read the recorded events, and wait for new ones."""
