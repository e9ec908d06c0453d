"""A small shop that uses django_ojs: its settings, its app and the demonstration."""
