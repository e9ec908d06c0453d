"""External payloads (payload-limits §5).

The server stores references as they are. The worker resolves them before it calls the handler. The
Python client can offload large arguments: it stores them in S3 and enqueues references.
"""
