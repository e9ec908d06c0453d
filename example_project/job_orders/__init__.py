"""Which order a job is about: an extension of django_ojs that is no part of it."""
