"""Integrations: Celery, MariaDB, OpenTelemetry, Sentry, and the context of requests."""
