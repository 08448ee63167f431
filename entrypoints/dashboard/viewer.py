"""The viewer of a page: their tenant and scopes."""

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import unquote

from fastapi import Depends, Request

from entrypoints.api.deps import get_principal
from entrypoints.api.problems import Problem
from entrypoints.api.tokens import Principal, Scope, is_tenant_name

TENANT = "penstock_tenant"


@dataclass(frozen=True, slots=True)
class Viewer:
    """A principal at the tenant that it looks at."""

    principal: Principal
    tenant_id: str

    @property
    def bound(self) -> bool:
        return self.principal.bound

    @property
    def may_write(self) -> bool:
        return Scope.WRITE in self.principal.scopes

    @property
    def may_review(self) -> bool:
        return Scope.REVIEW in self.principal.scopes

    @property
    def may_admin(self) -> bool:
        return Scope.ADMIN in self.principal.scopes

    @property
    def tenant_or_all(self) -> str | None:
        """For figures of all tenants (None); a viewer bound to a tenant sees only its own."""
        return self.tenant_id if self.bound else None


async def get_viewer(
    request: Request, principal: Annotated[Principal, Depends(get_principal)]
) -> Viewer:
    if principal.bound:
        return Viewer(principal, principal.tenant_id)
    chosen = unquote(request.cookies.get(TENANT, ""))
    return Viewer(principal, chosen if is_tenant_name(chosen) else principal.tenant_id)


def _require(scope: Scope) -> object:
    async def check(viewer: Annotated[Viewer, Depends(get_viewer)]) -> Viewer:
        if scope not in viewer.principal.scopes:
            raise Problem(403, f"your token lacks the scope {scope}: sign in with one that has it")
        return viewer

    return Depends(check)


Reader = Annotated[Viewer, _require(Scope.READ)]
Writer = Annotated[Viewer, _require(Scope.WRITE)]
Reviewer = Annotated[Viewer, _require(Scope.REVIEW)]
Admin = Annotated[Viewer, _require(Scope.ADMIN)]
