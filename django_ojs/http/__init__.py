"""The HTTP binding. It needs Django REST framework (`django-ojs[http]`)."""
