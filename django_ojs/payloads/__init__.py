"""Payloads outside of the envelope (payload-limits §5): references, and what they lead to.

The server stores references as they are. The worker resolves them before the handler is called;
the Python client makes them of arguments that are too large, where the settings say so.
"""
