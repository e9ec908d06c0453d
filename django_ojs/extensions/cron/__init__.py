"""Schedules (ojs-cron)."""
