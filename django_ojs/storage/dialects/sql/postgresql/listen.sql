-- Receives the notifications of notify.sql on this connection.
LISTEN {channel}
