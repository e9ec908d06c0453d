"""Events and signals: publishing them, and reading the kept ones."""
