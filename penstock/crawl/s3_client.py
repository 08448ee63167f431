"""The one factory of S3 clients, for AWS and for any server that speaks its protocol."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from penstock.errors import ConfigurationError

CONNECT_TIMEOUT_SECONDS = 5
READ_TIMEOUT_SECONDS = 30
TRIES = 3
CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class S3Access:
    """Where S3 is and who asks; what is left out is found as AWS's own tools find it."""

    endpoint_url: str | None = None
    region: str | None = None
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)


def build_s3_client(access: S3Access) -> Any:
    """A client that does not wait for ever. Safe to share by threads; close it after use."""
    import boto3
    from botocore.exceptions import BotoCoreError

    arguments = _checked_arguments(access)
    try:
        # A session of its own: the one that boto3 shares must not be used by several threads.
        return boto3.session.Session().client("s3", config=_config(access), **arguments)
    except (BotoCoreError, ValueError) as error:
        raise ConfigurationError(
            f"S3 cannot be used: {error}. Check the settings PENSTOCK_S3_… and those of AWS's tools"
        ) from error


def build_once(factory: Callable[[], Any]) -> Callable[[], Any]:
    """The same factory, called on first use and then never again, whichever threads ask."""
    lock = threading.Lock()
    built: list[Any] = []

    def build() -> Any:
        with lock:
            if not built:
                built.append(factory())
            return built[0]

    return build


def _config(access: S3Access) -> Any:
    from botocore.config import Config

    common = {
        "connect_timeout": CONNECT_TIMEOUT_SECONDS,
        "read_timeout": READ_TIMEOUT_SECONDS,
        "retries": {"mode": "standard", "total_max_attempts": TRIES},
        "max_pool_connections": CONNECTIONS,
    }
    if not access.endpoint_url:
        return Config(**common)
    # Other servers seldom have a host name for each bucket, or know AWS's newer checksums.
    return Config(
        **common,
        s3={"addressing_style": "path"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )


def _checked_arguments(access: S3Access) -> dict[str, str | None]:
    key, secret, token = (
        _checked_secret(access.access_key_id, "PENSTOCK_S3_ACCESS_KEY_ID"),
        _checked_secret(access.secret_access_key, "PENSTOCK_S3_SECRET_ACCESS_KEY"),
        _checked_secret(access.session_token, "PENSTOCK_S3_SESSION_TOKEN"),
    )
    if bool(key) != bool(secret) or (token and not key):
        raise ConfigurationError(
            "only a part of the S3 credentials is set: set both PENSTOCK_S3_ACCESS_KEY_ID and "
            "PENSTOCK_S3_SECRET_ACCESS_KEY, or none of PENSTOCK_S3_…KEY… and …TOKEN"
        )
    return {
        "endpoint_url": _checked_endpoint(access.endpoint_url),
        "region_name": access.region or None,
        "aws_access_key_id": key,
        "aws_secret_access_key": secret,
        "aws_session_token": token,
    }


def _checked_secret(value: str | None, setting: str) -> str | None:
    """The value as a header can carry it: the error about one that cannot would show it."""
    text = (value or "").strip()
    if not text.isascii() or not text.isprintable():
        raise ConfigurationError(
            f"{setting} holds characters that no key has: copy it again, without anything around"
        )
    return text or None


def _checked_endpoint(url: str | None) -> str | None:
    if not url:
        return None
    if not url.lower().startswith(("http://", "https://")):
        raise ConfigurationError(
            "PENSTOCK_S3_ENDPOINT_URL is no web address: begin it with http:// or https://"
        )
    if "@" in urlsplit(url).netloc:
        raise ConfigurationError(
            "PENSTOCK_S3_ENDPOINT_URL holds a user name or password, which would be shown: set "
            "PENSTOCK_S3_ACCESS_KEY_ID and PENSTOCK_S3_SECRET_ACCESS_KEY instead"
        )
    return url
