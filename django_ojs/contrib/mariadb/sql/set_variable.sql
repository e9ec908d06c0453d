-- Sets a variable of the session.
SET SESSION {{variable}} = %s
