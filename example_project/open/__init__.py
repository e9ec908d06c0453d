"""The example project as an open OJS server: for whoever writes a client or a worker.

Everybody on this machine may do everything, and nothing is kept. Not a site to start from.
"""
