"""The operations of the Open Job Spec (ojs-core §7), a file each; other subjects have a folder.

The Python client, the worker, the HTTP API and the admin call these. Nothing else changes a job.
"""
