"""The worker: a supervisor over child processes.

In each: a loop that claims, threads that run, one that finishes, and a pulse.
"""
