"""What is measured, a module a subject."""
