"""The worker: a supervisor over child processes.

Each child has a loop that claims jobs, threads that run them, a thread that stores the outcomes
(the completer) and a thread that sends beats (the heartbeat).
"""
