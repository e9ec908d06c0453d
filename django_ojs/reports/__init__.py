"""What the three doors show of queues, jobs and workers. It reads, and no other part imports it."""
