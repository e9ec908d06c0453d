-- What this user may do.
SHOW GRANTS
