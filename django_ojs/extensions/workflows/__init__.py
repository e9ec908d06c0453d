"""Workflows (ojs-workflows)."""
