-- A setting of the session.
SELECT current_setting(%s)
