"""`Celery`: the app of a project's `celery.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from django_ojs.contrib.celery.canvas import Signature, signature
from django_ojs.contrib.celery.configuration import Configuration, configuration
from django_ojs.contrib.celery.exceptions import NoEquivalent
from django_ojs.contrib.celery.registration import add, tasks
from django_ojs.contrib.celery.task import Task as BaseTask
from django_ojs.contrib.celery.task import shared_task

if TYPE_CHECKING:
    from django_ojs.contrib.celery import result

#: The modules of installed apps that are imported at the start of each process.
task_modules: Final = {"tasks"}
#: Other modules that are imported at the start of each process.
included: Final[list[str]] = []


_configured: Final[list[tuple[Callable[..., Any], Celery]]] = []


def configured() -> None:
    """Call the receivers of `on_after_configure` and `on_after_finalize`."""
    while _configured:
        receiver, app = _configured.pop(0)
        receiver(sender=app)


class _Configured:
    """A signal of an app that is sent once, when all tasks are declared."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def connect(self, receiver: Callable[..., Any], **kwargs: Any) -> Callable[..., Any]:
        """Call `receiver(sender=app)` once all tasks are declared. This is a decorator too."""
        _configured.append((receiver, self._app))
        return receiver


class _Control:
    """`app.control`, of which only `revoke` has an equivalent."""

    def revoke(self, task_id: str | Iterable[str], *args: Any, **kwargs: Any) -> None:
        """Cancel one job or several; a running job is interrupted."""
        from django_ojs.contrib.celery.result import AsyncResult

        for each in [task_id] if isinstance(task_id, str) else task_id:
            AsyncResult(each).revoke()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NoEquivalent(
            f"control.{name} has no equivalent: use the admin, or `manage.py ojs workers`."
        )


class Celery:
    """Tasks and configuration; the worker is `manage.py ojs_worker`, which needs no app.

    `include` is a list of modules that each process imports at its start. Other arguments, such as
    `broker` and `backend`, have no effect.
    """

    conf: Configuration = configuration
    Task: ClassVar = BaseTask

    def __init__(
        self, main: str | None = None, include: Iterable[str] | None = None, **kwargs: Any
    ) -> None:
        self.main = main
        included.extend(include or ())
        self.control = _Control()
        self.on_after_configure = self.on_after_finalize = _Configured(self)

    @property
    def tasks(self) -> dict[str, BaseTask]:
        """The tasks of this process, by name."""
        return tasks

    def task(self, *args: Any, **options: Any) -> Any:
        """Declare a task; see `shared_task`."""
        return shared_task(*args, **options)

    def register_task(self, task: BaseTask | type[BaseTask]) -> BaseTask:
        """Register a subclass of `Task`, or an instance of one."""
        task = task() if isinstance(task, type) else task
        task.name = task.name or f"{type(task).__module__}.{type(task).__name__}"
        add(task)
        return task

    def AsyncResult(self, task_id: str, **kwargs: Any) -> result.AsyncResult:
        """Return the result of a job."""
        from django_ojs.contrib.celery.result import AsyncResult

        return AsyncResult(task_id)

    def config_from_object(self, obj: object, namespace: str | None = None, **kwargs: Any) -> None:
        """Do nothing for the settings of Django, which `conf` reads.

        Raise NoEquivalent for others.
        """
        if obj != "django.conf:settings" or namespace != "CELERY":
            raise NoEquivalent(
                "Celery's configuration is read from Django's settings: write "
                'app.config_from_object("django.conf:settings", namespace="CELERY").'
            )

    def autodiscover_tasks(
        self,
        packages: Iterable[str] | Callable[[], Iterable[str]] | None = None,
        related_name: str | None = "tasks",
        force: bool = False,
    ) -> None:
        """Import the module of this name from each installed app, once all apps are loaded.

        The modules of `packages` are imported too. If `packages` is a function, it is not called,
        because it would return installed apps.
        """
        if related_name is not None:
            task_modules.add(related_name)
        if packages is not None and not callable(packages):
            included.extend(
                f"{package}.{related_name}" if related_name else package for package in packages
            )

    def send_task(
        self,
        name: str,
        args: Iterable[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
        **options: Any,
    ) -> result.AsyncResult | result.EagerResult:
        """Enqueue a task by its name; see `Task.apply_async`."""
        return signature(name, args, kwargs).apply_async(**options)

    def add_periodic_task(
        self, schedule: object, sig: Signature, name: str | None = None, **options: Any
    ) -> str:
        """Add an entry to `app.conf.beat_schedule`, and return its name."""
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


#: All apps of a process have the same tasks.
current_app: Final = Celery()
