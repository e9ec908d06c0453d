"""Tests of the backend of `django.tasks`. It is an app too: workers find its `tasks.py`."""
