"""What the three doors show of queues, jobs and workers. It only reads, and only they import it."""
