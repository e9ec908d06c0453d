"""Handlers that the tests of the worker run."""

from __future__ import annotations
