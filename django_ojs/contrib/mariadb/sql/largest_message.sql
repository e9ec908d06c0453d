-- The bytes of the largest statement that the server takes.
SELECT @@max_allowed_packet
