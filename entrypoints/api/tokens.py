"""Authentication: a bearer token names a tenant and its scopes."""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import jwt

from entrypoints.api.problems import Problem
from penstock.errors import ConfigurationError
from penstock.settings import Settings

LONGEST_TENANT = 200
_LAST_SECOND = 253402300799  # of the year 9999, after which there are no dates
# Postgres stores no NUL, and UTF-8 carries no half of a surrogate pair.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class Scope(StrEnum):
    READ = "kg:read"
    WRITE = "kg:write"
    REVIEW = "kg:review"
    """To see what needs review, to correct it and to accept it."""
    ADMIN = "admin:refresh"
    METRICS = "admin:metrics"
    """The figures of all tenants: for operators of the service."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller. Without tokens, a user of this machine, who may name any tenant."""

    tenant_id: str
    scopes: frozenset[str]
    bound: bool
    """Whether the tenant was named by a token, so that no other one may be named."""
    until: float | None = None
    """When the token ends, in seconds since 1970."""
    subject: str | None = None
    """Who the token was made for, by its claim `sub`."""

    @property
    def author(self) -> str:
        """Of what the caller says about records."""
        return self.subject or (self.tenant_id if self.bound else "local user")


def is_tenant_name(name: str) -> bool:
    """Whether a tenant may be called so: by something visible that every store can hold."""
    return bool(name.strip()) and len(name) <= LONGEST_TENANT and not _UNSTORABLE.search(name)


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
        if not isinstance(tenant, str) or not is_tenant_name(tenant):
            raise _unauthorized("the token has no valid tenant: set the claim `tenant`")
        return Principal(
            tenant,
            _scopes(claims),
            bound=True,
            until=float(claims["exp"]),
            subject=str(claims.get("sub", "")).strip()[:LONGEST_TENANT] or None,
        )

    def _decode(self, token: str) -> dict[str, Any]:
        try:
            # The header is not verified yet and may hold anything.
            algorithm = str(jwt.get_unverified_header(token).get("alg"))
            # Each algorithm has its own key: a public key must never be taken for a secret.
            key = self._keys.get(algorithm)
            if key is None:
                raise _unauthorized(f"the token must be signed with {' or '.join(self._keys)}")
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._audience,
                issuer=self._issuer,
                options={"require": ["exp"], "verify_aud": self._audience is not None},
            )
            _check_times(claims)
        except jwt.PyJWTError as error:
            raise _unauthorized(f"the token is not valid: {error}") from None
        except (OverflowError, ValueError, TypeError):
            raise _unauthorized(
                "the token is not valid: exp, nbf and iat are seconds since 1970"
            ) from None
        return claims


def _read_keys(settings: Settings) -> dict[str, str]:
    keys: dict[str, str] = {}
    if settings.api_jwt_secret is not None:
        keys["HS256"] = settings.api_jwt_secret.get_secret_value()
    path = settings.api_jwt_public_key
    if path is not None:
        keys["RS256"] = _read_public_key(path)
    return keys


def _read_public_key(path: Path) -> str:
    """Checked at the start: with an invalid key, every token would be refused."""
    try:
        key = path.read_text()
        jwt.get_algorithm_by_name("RS256").prepare_key(key)
    except OSError as error:
        raise ConfigurationError(
            f"PENSTOCK_API_JWT_PUBLIC_KEY={path} cannot be read: {error.strerror or error}"
        ) from error
    except (ValueError, TypeError, jwt.PyJWTError) as error:
        raise ConfigurationError(
            f"PENSTOCK_API_JWT_PUBLIC_KEY={path} holds no RSA key: name a file in PEM format"
        ) from error
    return key


def _check_times(claims: dict[str, Any]) -> None:
    """A signed token may hold any number."""
    for name in ("exp", "nbf", "iat"):
        if not 0 <= float(claims.get(name, 0)) <= _LAST_SECOND:
            raise ValueError(f"{name} is no time")


def _scopes(claims: dict[str, Any]) -> frozenset[str]:
    found = claims.get("scopes", claims.get("scope"))
    if isinstance(found, str):
        return frozenset(found.split())
    named = found if isinstance(found, list) else []
    return frozenset(one for one in named if isinstance(one, str))


def _unauthorized(detail: str) -> Problem:
    return Problem(401, detail, headers={"WWW-Authenticate": "Bearer"})
