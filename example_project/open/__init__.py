"""The example project as an open OJS server: for authors of clients and workers.

Every process on this machine has full access, and no data is kept. Do not base a site on it.
"""
