"""Jobs for another server, in the caller's transaction."""
