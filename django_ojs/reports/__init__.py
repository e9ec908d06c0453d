"""What the admin, the HTTP API and the command line show. Of it, only `incidents` writes."""
