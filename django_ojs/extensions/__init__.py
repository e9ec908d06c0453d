"""Subjects that hang on the core by `django_ojs.extension` alone; `apps` registers them."""
