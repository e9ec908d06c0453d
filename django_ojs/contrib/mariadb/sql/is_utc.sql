-- Whether the time zone of the session is UTC, now and in half a year.
SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), NOW()) = 0
       AND UNIX_TIMESTAMP('2026-01-01 00:00:00') = 1767225600
       AND UNIX_TIMESTAMP('2026-07-01 00:00:00') = 1782864000
