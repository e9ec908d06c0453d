"""Who asks, and what they may do (ojs-security §7)."""

from dataclasses import dataclass
from typing import Any, Protocol

from django_ojs.spec.errors import PermissionDenied
from django_ojs.spec.scopes import Scope, complete

__all__ = ["ANYBODY", "PERMISSIONS", "Access", "Scope", "access_of", "scopes_of"]

#: What a user needs for a scope: a Django permission, given in the Django admin.
PERMISSIONS: dict[Scope, str] = {
    Scope.READ: "django_ojs.view_job",
    Scope.PRODUCER: "django_ojs.push_job",
    Scope.WORKER: "django_ojs.work_job",
    Scope.OPERATOR: "django_ojs.operate_job",
    Scope.ADMIN: "django_ojs.administer_job",
}


class User(Protocol):
    """What is asked of a user."""

    @property
    def is_authenticated(self) -> bool:
        """Whether it is somebody."""

    def has_perm(self, perm: str) -> bool:
        """Whether it has a permission. Superusers have all, inactive users none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """What one caller may do. `queues` None: all of them.

    `name` names the caller in logs and in the audit trail; it is no secret.
    """

    name: str
    scopes: frozenset[Scope]
    queues: frozenset[str] | None = None

    def allows(self, scope: Scope) -> bool:
        """Say whether the caller has a scope, or one that includes it."""
        return scope in complete(self.scopes)

    def check(self, scope: Scope) -> None:
        """Raise PermissionDenied unless the caller has a scope."""
        if not self.allows(scope):
            raise PermissionDenied(
                f"This needs the scope {scope}.", details={"required_scope": scope.value}
            )

    def sees(self, queue: str) -> bool:
        """Say whether the caller may use a queue."""
        return self.queues is None or queue in self.queues

    def check_queue(self, queue: str) -> None:
        """Raise PermissionDenied unless the caller may use a queue (ojs-security §7.1)."""
        if not self.sees(queue):
            raise PermissionDenied(
                "queue: these credentials are for other queues.", details={"field": "queue"}
            )

    def check_all_queues(self) -> None:
        """Raise PermissionDenied where the caller is kept to some queues.

        For what concerns all of them at once: workers, maintenance, the totals.
        """
        if self.queues is not None:
            raise PermissionDenied(
                "This concerns all queues, and these credentials are for some of them."
            )


#: What a caller may do in an API that was opened on purpose.
ANYBODY = Access(name="anybody", scopes=frozenset(Scope))


def access_of(request: Any) -> Access | None:
    """Return what the caller of a DRF request may do, or None for an anonymous one.

    An authentication class may answer with an Access as `request.auth`. Any other one has
    authenticated a user, whose Django permissions decide.
    """
    if isinstance(request.auth, Access):
        return request.auth
    user = request.user
    if user is None or not user.is_authenticated:
        return None
    return Access(name=str(user), scopes=scopes_of(user))


def scopes_of(user: User) -> frozenset[Scope]:
    """Return the scopes a user has by Django permissions."""
    return frozenset(scope for scope, name in PERMISSIONS.items() if user.has_perm(name))
