"""A worker's configuration: the settings, and what was given goes before them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_ojs.worker.config import WorkerConfig


def test_the_defaults() -> None:
    config = WorkerConfig.from_settings()
    assert config == WorkerConfig()
    assert (config.queues, config.processes, config.threads) == (("default",), 1, 10)
    assert config.grace == timedelta(seconds=25)


def test_the_settings_fill_what_was_not_given(settings: Any) -> None:
    settings.OJS = {"GRACE_PERIOD": 3, "POLL_INTERVAL": 4, "HEARTBEAT_INTERVAL": 5}
    config = WorkerConfig.from_settings(grace=timedelta(seconds=1), poll_interval=None)
    assert config.grace == timedelta(seconds=1)
    assert config.poll_interval == timedelta(seconds=4)
    assert config.heartbeat_interval == timedelta(seconds=5)


def test_a_name_that_is_no_argument_is_an_error() -> None:
    with pytest.raises(TypeError):
        WorkerConfig.from_settings(therads=3)
