"""Settings of the site of the day: the example's, for its admin, and the handlers of the day."""

from example_project.settings import *  # noqa: F403 - the example's settings

INSTALLED_APPS += ["tests.benchmarks.day"]  # noqa: F405 - from the star
# A default of the package: a busy machine may keep a worker silent for a few seconds.
OJS["HEARTBEAT_INTERVAL"] = 5  # noqa: F405 - from the star
