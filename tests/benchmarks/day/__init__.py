"""A day of a large site, compressed in time."""

#: Seconds of an hour of the day, for all processes.
HOUR_VARIABLE = "OJS_DAY_HOUR"
