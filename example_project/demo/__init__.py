"""`manage.py demo`: place orders, work their jobs, kill a worker, check the ledger."""
