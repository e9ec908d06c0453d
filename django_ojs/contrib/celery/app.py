"""`Celery`: the app of a project's `celery.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NoReturn

from django_ojs.contrib.celery.canvas import Signature, signature
from django_ojs.contrib.celery.configuration import Configuration, configuration
from django_ojs.contrib.celery.exceptions import NoEquivalent
from django_ojs.contrib.celery.registration import add, tasks
from django_ojs.contrib.celery.task import Task, shared_task

if TYPE_CHECKING:
    from django_ojs.contrib.celery.result import AsyncResult

#: The modules of installed apps that are imported at the start of each process.
task_modules: Final = {"tasks"}


_configured: Final[list[tuple[Callable[..., Any], Celery]]] = []


def configured() -> None:
    """Call what waits for the configuration: `on_after_configure` and `on_after_finalize`."""
    while _configured:
        receiver, app = _configured.pop(0)
        receiver(sender=app)


class _Configured:
    """A signal of an app that is sent once, when all tasks are declared."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def connect(self, receiver: Callable[..., Any], **kwargs: Any) -> Callable[..., Any]:
        """Call `receiver(sender=app)` then; a decorator too."""
        _configured.append((receiver, self._app))
        return receiver


class Celery:
    """Tasks and configuration; the worker is `manage.py ojs_worker`, which needs no app.

    Arguments other than `main` name a broker or a result backend, and have no effect.
    """

    conf: Configuration = configuration

    def __init__(self, main: str | None = None, **kwargs: Any) -> None:
        self.main = main
        self.on_after_configure = self.on_after_finalize = _Configured(self)

    @property
    def tasks(self) -> dict[str, Task]:
        """The tasks of this process, by name."""
        return tasks

    def task(self, *args: Any, **options: Any) -> Any:
        """Declare a task; see `shared_task`."""
        return shared_task(*args, **options)

    def register_task(self, task: Task) -> Task:
        """Register an instance of a subclass of `Task`."""
        add(task)
        return task

    def config_from_object(self, obj: object, namespace: str | None = None, **kwargs: Any) -> None:
        """Do nothing for the settings of Django: `conf` reads them. Raises NoEquivalent else."""
        if obj != "django.conf:settings" or namespace != "CELERY":
            raise NoEquivalent(
                "Celery's configuration is read from Django's settings: write "
                'app.config_from_object("django.conf:settings", namespace="CELERY").'
            )

    def autodiscover_tasks(
        self,
        packages: Iterable[str] | Callable[[], Iterable[str]] | None = None,
        related_name: str = "tasks",
        force: bool = False,
    ) -> None:
        """Import the modules of this name of all installed apps when they are loaded."""
        task_modules.add(related_name)

    def send_task(
        self,
        name: str,
        args: Iterable[Any] = (),
        kwargs: dict[str, Any] | None = None,
        **options: Any,
    ) -> AsyncResult:
        """Enqueue a task by its name; see `Task.apply_async`."""
        return signature(name, tuple(args), kwargs).apply_async(**options)

    def add_periodic_task(
        self, schedule: object, sig: Signature, name: str | None = None, **options: Any
    ) -> str:
        """Add an entry to `conf.beat_schedule`, and return its name."""
        name = name or sig.task
        entry = {
            "task": sig.task,
            "schedule": schedule,
            "args": sig.args,
            "kwargs": sig.kwargs,
            "options": {**sig.options, **options},
        }
        self.conf.beat_schedule = {**(self.conf.beat_schedule or {}), name: entry}
        return name

    def signature(self, *args: Any, **kwargs: Any) -> Signature:
        """Return a signature; see `signature`."""
        return signature(*args, **kwargs)

    def set_default(self) -> None:
        """Do nothing: all apps of a process have the same tasks."""

    def set_current(self) -> None:
        """Do nothing: all apps of a process have the same tasks."""

    def start(self, argv: list[str] | None = None) -> NoReturn:
        """Raise NoEquivalent: the worker is a command of Django."""
        raise NoEquivalent("The worker is `python manage.py ojs_worker`.")

    worker_main = start
