"""The HTTP binding: one policy a file. Needs Django REST framework (`django-ojs[http]`)."""
