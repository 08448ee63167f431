"""Dependencies of the endpoints: the application, and the caller."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request

from entrypoints.api.loopback import refuse_strangers
from entrypoints.api.problems import Problem
from entrypoints.api.quick import Settled
from entrypoints.api.ratelimit import TenantRates
from entrypoints.api.tokens import (
    LONGEST_TENANT,
    Principal,
    Scope,
    TokenReader,
    is_tenant_name,
)
from penstock.app import App
from penstock.errors import UsageError
from penstock.intake.intake import GroupCommit
from penstock.settings import Settings

# All of these are coroutines although none waits: a plain function would cost each request a
# thread for nothing.


async def get_app(request: Request) -> App:
    app: App = request.app.state.penstock
    return app


async def get_gathering(request: Request) -> GroupCommit:
    gathering: GroupCommit = request.app.state.gathering
    return gathering


async def get_settled(request: Request) -> Settled:
    settled: Settled = request.app.state.settled
    return settled


async def get_principal(
    request: Request, authorization: Annotated[str | None, Header(include_in_schema=False)] = None
) -> Principal:
    """The caller, counted against the request rate of their tenant."""
    reader: TokenReader | None = request.app.state.tokens
    if reader is None:
        settings: Settings = request.app.state.penstock.settings
        refuse_strangers(request.method, request.headers, settings.api_cors_origins)
        return Principal(settings.tenant, frozenset(Scope), bound=False)
    principal = reader.read(authorization)
    rates: TenantRates = request.app.state.rates
    wait_seconds = rates.take(principal.tenant_id)
    if wait_seconds:
        raise Problem(
            429,
            f"tenant {principal.tenant_id} has exceeded its request rate; "
            f"try again in {wait_seconds} s",
            headers={"Retry-After": str(wait_seconds)},
        )
    return principal


def require(*scopes: Scope) -> Callable[..., Awaitable[Principal]]:
    """Require one of these scopes."""

    async def check(principal: Annotated[Principal, Depends(get_principal)]) -> Principal:
        if principal.scopes.isdisjoint(scopes):
            named = " or ".join(scopes)
            raise Problem(403, f"the token lacks the scope {named}: ask for one that has it")
        return principal

    return check


def tenant_of(principal: Principal, named: str | None) -> str:
    """The tenant that a request is about; a token's holder may name no other than its own."""
    if named is None:
        return principal.tenant_id
    if not is_tenant_name(named):
        raise UsageError(f"tenant_id must have 1 to {LONGEST_TENANT} visible characters")
    if principal.bound and named != principal.tenant_id:
        raise Problem(
            403,
            f"the token is for tenant {principal.tenant_id}, not for {named}: leave tenant_id out",
        )
    return named


def read_tenant(scope: Scope) -> Any:
    """The tenant of a request that names it in its query."""

    async def read(
        principal: Annotated[Principal, Depends(require(scope))],
        tenant_id: Annotated[str | None, Query(description="Whose; default: the token's")] = None,
    ) -> str:
        return tenant_of(principal, tenant_id)

    return Depends(read)


AppDep = Annotated[App, Depends(get_app)]
GatheringDep = Annotated[GroupCommit, Depends(get_gathering)]
SettledDep = Annotated[Settled, Depends(get_settled)]
Reader = Annotated[Principal, Depends(require(Scope.READ))]
Writer = Annotated[Principal, Depends(require(Scope.WRITE))]
Reviewer = Annotated[Principal, Depends(require(Scope.REVIEW))]
Admin = Annotated[Principal, Depends(require(Scope.ADMIN))]
ReadTenant = Annotated[str, read_tenant(Scope.READ)]
WriteTenant = Annotated[str, read_tenant(Scope.WRITE)]
ReviewTenant = Annotated[str, read_tenant(Scope.REVIEW)]
AdminTenant = Annotated[str, read_tenant(Scope.ADMIN)]
