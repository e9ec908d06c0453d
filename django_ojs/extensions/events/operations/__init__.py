"""Events and signals: publishing them, and reading the recorded events."""
