"""What the admin, the HTTP API and the command line show. Only `incidents` writes."""
