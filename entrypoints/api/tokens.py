"""Who asks: a bearer token names a tenant and what it may do there."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import jwt

from entrypoints.api.problems import Problem
from penstock.errors import ConfigurationError
from penstock.settings import Settings


class Scope(StrEnum):
    READ = "kg:read"
    WRITE = "kg:write"
    ADMIN = "admin:refresh"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. Without tokens it is whoever sits at this machine, and may name any tenant."""

    tenant_id: str
    scopes: frozenset[str]
    bound: bool
    """Whether the tenant was named by a token, so that no other one may be named."""


class TokenReader:
    """Checks tokens by the keys in the settings. HS256 with a secret, RS256 with a public key."""

    def __init__(self, settings: Settings) -> None:
        self._audience = settings.api_jwt_audience
        self._issuer = settings.api_jwt_issuer
        self._keys = _read_keys(settings)

    def read(self, header: str | None) -> Principal:
        """The principal of an Authorization header, or a 401."""
        kind, _, token = (header or "").partition(" ")
        if kind.lower() != "bearer" or not token:
            raise _unauthorized("send a token: Authorization: Bearer …")
        claims = self._decode(token.strip())
        tenant = claims.get("tenant") or claims.get("tenant_id")
        if not isinstance(tenant, str) or not tenant:
            raise _unauthorized("the token names no tenant")
        return Principal(tenant, _scopes(claims), bound=True)

    def _decode(self, token: str) -> dict[str, Any]:
        try:
            algorithm = jwt.get_unverified_header(token).get("alg", "")
            # Each algorithm has its own key: a public key must never be taken for a secret.
            key = self._keys.get(algorithm)
            if key is None:
                raise _unauthorized(f"tokens are signed with {' or '.join(self._keys)} here")
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._audience,
                issuer=self._issuer,
                options={"require": ["exp"], "verify_aud": self._audience is not None},
            )
        except jwt.PyJWTError as error:
            raise _unauthorized(f"the token is not valid: {error}") from None
        return claims


def _read_keys(settings: Settings) -> dict[str, str]:
    keys: dict[str, str] = {}
    if settings.api_jwt_secret is not None:
        keys["HS256"] = settings.api_jwt_secret.get_secret_value()
    path = settings.api_jwt_public_key
    if path is not None:
        try:
            keys["RS256"] = path.read_text()
        except OSError as error:
            raise ConfigurationError(
                f"PENSTOCK_API_JWT_PUBLIC_KEY={path} cannot be read: {error.strerror or error}"
            ) from error
    return keys


def _scopes(claims: dict[str, Any]) -> frozenset[str]:
    found = claims.get("scopes", claims.get("scope", ()))
    if isinstance(found, str):
        return frozenset(found.split())
    return frozenset(one for one in found if isinstance(one, str))


def _unauthorized(detail: str) -> Problem:
    return Problem(401, detail, headers={"WWW-Authenticate": "Bearer"})
