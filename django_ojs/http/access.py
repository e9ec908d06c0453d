"""What a caller may do: its scopes and its queues (ojs-security §7)."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

from django_ojs.operations.worker_activity import Principal
from django_ojs.spec.errors import PermissionDenied, Unauthenticated
from django_ojs.spec.scopes import Scope, complete
from django_ojs.storage import queue_configs

#: The Django permission that gives a user a scope; it is granted in the Django admin.
PERMISSIONS: dict[Scope, str] = {
    Scope.READ: "django_ojs.view_job",
    Scope.PRODUCER: "django_ojs.push_job",
    Scope.WORKER: "django_ojs.work_job",
    Scope.OPERATOR: "django_ojs.operate_job",
    Scope.ADMIN: "django_ojs.administer_job",
}


#: The identity of a caller with an API key begins with this.
API_KEY = "api-key "


class User(Protocol):
    """The part of the interface of Django's users that is needed here."""

    @property
    def is_authenticated(self) -> bool: ...

    def has_perm(self, perm: str) -> bool:
        """Whether the user has a permission. Superusers have all, inactive users none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """What one caller may do. None in `queues` means all queues.

    `name` identifies the caller in logs and in the audit trail; it is no secret. `identity` is the
    same for all credentials of one caller, such as a key and the key that replaces it; by default
    it is the name. `producers` are the names by which the configuration of a queue may list the
    caller among its producers; by default, the name.
    """

    name: str
    scopes: frozenset[Scope]
    queues: frozenset[str] | None = None
    identity: str | None = None
    producers: frozenset[str] = frozenset()

    @property
    def principal(self) -> Principal:
        """The caller, as the owner of the workers that it registers."""
        return Principal(id=self.identity or f"name {self.name}", limited=self.queues is not None)

    def allows(self, scope: Scope) -> bool:
        """Return whether the caller has a scope, or one that includes it."""
        # Most often the caller has the scope itself.
        return scope in self.scopes or scope in complete(self.scopes)

    def check(self, scope: Scope) -> None:
        """Raise PermissionDenied unless the caller has a scope."""
        if not self.allows(scope):
            raise PermissionDenied(
                f"This needs the scope {scope}.", details={"required_scope": scope.value}
            )

    def check_queue(self, queue: str) -> None:
        """Raise PermissionDenied unless the caller may use a queue (ojs-security §7.1)."""
        if self.queues is not None and queue not in self.queues:
            raise PermissionDenied(
                "queue: these credentials are for other queues.", details={"field": "queue"}
            )

    def check_any_queue(self, queues: Collection[str]) -> None:
        """Raise PermissionDenied unless the caller may use one of these, the queues of a job."""
        if self.queues is not None and self.queues.isdisjoint(queues):
            self.check_queue(min(queues))

    def may_read(self, queues: Collection[str]) -> bool:
        """Whether the caller may read a job of these queues."""
        is_within = self.queues is None or not self.queues.isdisjoint(queues)
        return is_within and self.allows(Scope.READ)

    def check_dead_letter_queue(self, config: object) -> None:
        """Raise PermissionDenied unless the caller may use a configuration's dead letter queue."""
        target = config.get("dead_letter_queue") if isinstance(config, dict) else None
        if isinstance(target, str) and self.queues is not None and target not in self.queues:
            raise PermissionDenied(
                "dead_letter_queue: these credentials are for other queues.",
                details={"field": "dead_letter_queue"},
            )

    def check_producer(self, queue: str) -> None:
        """Raise PermissionDenied unless a queue accepts jobs of the caller (queue-config §6.5)."""
        if not queue_configs.of(queue).allows_producer(self.producers or {self.name}):
            raise PermissionDenied(
                "queue: its configuration lists other producers.", details={"field": "queue"}
            )

    def check_all_queues(self) -> None:
        """Raise PermissionDenied for a caller that is limited to some queues.

        It protects what concerns all queues: workers, maintenance mode, the default configuration.
        """
        if self.queues is not None:
            raise PermissionDenied(
                "This concerns all queues, and these credentials are for some of them."
            )


#: The access of every caller of an API that is open on purpose.
FULL_ACCESS = Access(name="anybody", scopes=frozenset(Scope))


def access_of(request: Any) -> Access | None:
    """Return what the caller of a request may do, None for an unauthenticated one."""
    found: Access | None = getattr(request, "ojs_access", None)
    return found


def required_access(request: Any) -> Access:
    """Return what the caller of a request may do. Raises Unauthenticated."""
    access = access_of(request)
    if access is None:
        raise unauthenticated()
    return access


def unauthenticated() -> Unauthenticated:
    """Return the error for a request without accepted credentials."""
    return Unauthenticated(
        "This needs credentials, and the request carries none that are accepted here.",
        hint="Send an API key: `Authorization: Bearer <key>`.",
    )


def scopes_of(user: User) -> frozenset[Scope]:
    """Return the scopes that a user has by Django permissions."""
    if not hasattr(user, "has_perm"):  # A user model without PermissionsMixin has no permissions.
        return frozenset()
    return frozenset(scope for scope, name in PERMISSIONS.items() if user.has_perm(name))
