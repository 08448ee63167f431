"""Tokens, good and bad."""

import time
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

SECRET = "a-secret-that-nobody-else-knows-0123456789"
EVERY_SCOPE = ("kg:read", "kg:write", "kg:review", "admin:refresh")


def make_token(
    tenant: str | None = "acme",
    scopes: Any = EVERY_SCOPE,
    *,
    key: Any = SECRET,
    algorithm: str = "HS256",
    **claims: Any,
) -> str:
    """A token that is good for a minute, unless the claims say otherwise."""
    payload = {"exp": int(time.time()) + 60, "scopes": scopes, **claims}
    if tenant is not None:
        payload["tenant"] = tenant
    return jwt.encode(payload, key, algorithm)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def as_tenant(tenant: str, *scopes: str) -> dict[str, str]:
    """The header of somebody who may do everything, or only this, for a tenant."""
    return bearer(make_token(tenant, list(scopes or EVERY_SCOPE)))


@cache
def make_rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def public_pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def write_public_key(folder: Path) -> Path:
    path = folder / "public.pem"
    path.write_bytes(public_pem(make_rsa_key()))
    return path
