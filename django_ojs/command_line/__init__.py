"""The subcommands of `manage.py ojs`, by subject."""
