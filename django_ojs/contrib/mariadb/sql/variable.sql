-- A variable of the session.
SELECT @@{{variable}}
