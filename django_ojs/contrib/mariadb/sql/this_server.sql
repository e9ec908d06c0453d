-- What another server behind the same name would have different.
SELECT @@hostname, @@port, @@datadir
