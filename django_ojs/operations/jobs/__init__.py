"""Lists of jobs: filters, cursors, listings, dead letters, and bulk operations on them."""
