"""The operations of the Open Job Spec (ojs-core §7), one file each; other subjects have folders.

The Python client, the worker, the HTTP API and the admin call these. Nothing else changes a job.
"""
