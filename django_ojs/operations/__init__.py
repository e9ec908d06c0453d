"""The operations of the Open Job Spec (ojs-core §7), one file each; other subjects have folders.

The Python client, the worker, the HTTP API, the admin and the commands call these.
"""
