"""Extensions, which the core knows only by `django_ojs.extension`; `apps` registers them."""
