"""How fast django_ojs is: beside bare SQL, and beside what else a project could use.

`make bench` runs it; `test_smoke` keeps it from rotting. It is a Django app too: `jobs` holds the
handlers that the workers run.
"""
