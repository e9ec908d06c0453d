"""Django signals of jobs, and the log of their changes."""
