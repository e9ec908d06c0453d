"""The checks of `manage.py ojs doctor`, by subject."""
