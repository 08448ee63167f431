"""S3: the client factory, errors in plain words, and a bucket as a source.

What a server says about an error is never repeated, only its code: some echo the key they were
given.
"""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from penstock.crawl.listing import Listed
from penstock.errors import ConfigurationError, DocumentFault, ErrorClass, ListingFailed, UsageError

CONNECT_TIMEOUT_SECONDS = 5
READ_TIMEOUT_SECONDS = 30
TRIES = 3
CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class S3Access:
    """Endpoint and credentials; what is None is found as AWS's own tools find it."""

    endpoint_url: str | None = None
    region: str | None = None
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)


def build_s3_client(access: S3Access) -> Any:
    """A client with timeouts. Safe to share by threads; close it after use."""
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    arguments = _checked_arguments(access)
    options: dict[str, Any] = {
        "connect_timeout": CONNECT_TIMEOUT_SECONDS,
        "read_timeout": READ_TIMEOUT_SECONDS,
        "retries": {"mode": "standard", "total_max_attempts": TRIES},
        "max_pool_connections": CONNECTIONS,
    }
    if access.endpoint_url:
        # Other servers seldom have a host name for each bucket, or know AWS's newer checksums.
        options |= {
            "s3": {"addressing_style": "path"},
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
        }
    try:
        # A session of its own: the one that boto3 shares must not be used by several threads.
        return boto3.session.Session().client("s3", config=Config(**options), **arguments)
    except (BotoCoreError, ValueError) as error:
        raise ConfigurationError(
            f"S3 cannot be used: {error}. Check the settings PENSTOCK_S3_… and those of AWS's tools"
        ) from error


def build_once(factory: Callable[[], Any]) -> Callable[[], Any]:
    """The same factory, called once, on first use. Safe to share by threads."""
    lock = threading.Lock()
    built: list[Any] = []

    def build() -> Any:
        with lock:
            if not built:
                built.append(factory())
            return built[0]

    return build


def _checked_arguments(access: S3Access) -> dict[str, str | None]:
    key = _checked_secret(access.access_key_id, "PENSTOCK_S3_ACCESS_KEY_ID")
    secret = _checked_secret(access.secret_access_key, "PENSTOCK_S3_SECRET_ACCESS_KEY")
    token = _checked_secret(access.session_token, "PENSTOCK_S3_SESSION_TOKEN")
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
            f"{setting} holds characters that no key has: copy it again, without quotes or spaces"
        )
    return text or None


def _checked_endpoint(url: str | None) -> str | None:
    if not url:
        return None
    if not url.lower().startswith(("http://", "https://")):
        raise ConfigurationError(
            "PENSTOCK_S3_ENDPOINT_URL is not a URL: it must begin with http:// or https://"
        )
    if "@" in urlsplit(url).netloc:
        raise ConfigurationError(
            "PENSTOCK_S3_ENDPOINT_URL holds a user name or password, which would be shown: set "
            "PENSTOCK_S3_ACCESS_KEY_ID and PENSTOCK_S3_SECRET_ACCESS_KEY instead"
        )
    return url


_NO_S3_SERVER = "the response is not one of an S3 server; check PENSTOCK_S3_ENDPOINT_URL"
_GONE = frozenset({"NoSuchKey", "NoSuchVersion", "NotFound", "404"})
_BAD_KEY = frozenset(
    (
        *("ExpiredToken", "InvalidAccessKeyId", "InvalidSecurity", "InvalidToken"),
        *("SignatureDoesNotMatch", "TokenRefreshRequired"),
    )
)
_BAD_REGION = frozenset({"301", "AuthorizationHeaderMalformed", "PermanentRedirect"})
_KINDS = {
    "RequestTimeout": ErrorClass.TIMEOUT,
    "SlowDown": ErrorClass.RATE_LIMITED,
    # An archived object answers 403, though no permission is missing.
    "InvalidObjectState": ErrorClass.UNAVAILABLE,
}
_KINDS_BY_STATUS = {
    401: ErrorClass.FORBIDDEN,
    403: ErrorClass.FORBIDDEN,
    408: ErrorClass.TIMEOUT,
    429: ErrorClass.RATE_LIMITED,
    503: ErrorClass.RATE_LIMITED,
}
_HINTS = {
    "AccessDenied": "grant it to the account whose key is used",
    "InvalidObjectState": "it is archived; restore it first",
    "RequestTimeTooSkewed": "this machine's clock is wrong",
}


@contextmanager
def s3_errors(
    action: str, url: str, bucket_setting: str, *, listing: bool = False
) -> Iterator[None]:
    """Translate boto's errors to DocumentFault or ConfigurationError.

    `bucket_setting` says where the bucket's name is set, for the message. While listing a source,
    all but wrong credentials is a ListingFailed: the bucket is part of the source.
    """
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    try:
        yield
    except (BotoCoreError, ClientError, ResponseParserError) as error:
        bad_credentials = _credentials_error(error, url)
        if bad_credentials is not None:
            raise bad_credentials from error
        fault = _bucket_error(error, url, bucket_setting) or _document_fault(error, action, url)
        raise (ListingFailed(str(fault)) if listing else fault) from error


def list_bucket(
    client: Any, bucket: str, prefix: str, action: str, setting: str, *, listing: bool = False
) -> Iterator[dict[str, Any]]:
    """The entries of all objects whose key begins with the prefix; errors as of `s3_errors`."""
    from botocore.parsers import ResponseParserError

    with s3_errors(action, f"{SCHEME}{bucket}/{prefix}", setting, listing=listing):
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            # Any web server's response can be read as a page without objects.
            if "IsTruncated" not in page:
                raise ResponseParserError
            yield from page.get("Contents", ())


def status_of(error: Any) -> int:
    """The HTTP status of a `ClientError`."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def is_gone(error: Any) -> bool:
    """Whether a `ClientError` says that the object, not its bucket, is missing."""
    return _code_of(error) in _GONE


def _credentials_error(error: Exception, url: str) -> ConfigurationError | None:
    from botocore import exceptions

    advice = (
        "set PENSTOCK_S3_ACCESS_KEY_ID and PENSTOCK_S3_SECRET_ACCESS_KEY, or give AWS's tools a "
        "profile (AWS_PROFILE, ~/.aws/credentials)"
    )
    missing = (
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.CredentialRetrievalError,
        exceptions.NoAuthTokenError,
        exceptions.TokenRetrievalError,
        exceptions.SSOError,
    )
    if isinstance(error, missing):
        return ConfigurationError(f"no credentials for the bucket {_bucket_of(url)!r}: {advice}")
    if _code_of(error) in _BAD_KEY:
        said = f"{_code_of(error)} for the bucket {_bucket_of(url)!r}"
        return ConfigurationError(f"S3 does not accept the key ({said}): {advice}")
    return None


def _bucket_error(error: Exception, url: str, bucket_setting: str) -> ConfigurationError | None:
    from botocore.exceptions import ParamValidationError

    bucket, code = _bucket_of(url), _code_of(error)
    if code == "NoSuchBucket" or isinstance(error, ParamValidationError):
        return ConfigurationError(
            f"there is no bucket {bucket!r}: correct {bucket_setting}, or PENSTOCK_S3_ENDPOINT_URL "
            "if it is on another server"
        )
    if code in _BAD_REGION:
        return ConfigurationError(
            f"the bucket {bucket!r} is in another region: set PENSTOCK_S3_REGION to its own"
        )
    return None


def _document_fault(error: Exception, action: str, url: str) -> DocumentFault:
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        ConnectTimeoutError,
        ReadTimeoutError,
    )

    if isinstance(error, ConnectTimeoutError | ReadTimeoutError):
        return DocumentFault(ErrorClass.TIMEOUT, f"could not {action} {url}: no answer in time")
    if not isinstance(error, ClientError):
        reason = error if isinstance(error, BotoCoreError) else _NO_S3_SERVER
        return DocumentFault(ErrorClass.UNAVAILABLE, f"could not {action} {url}: {reason}")
    if is_gone(error):
        return DocumentFault(ErrorClass.UNAVAILABLE, f"{url} is no longer there")
    code, status = _code_of(error), status_of(error)
    kind = _KINDS.get(code) or _KINDS_BY_STATUS.get(status, ErrorClass.UNAVAILABLE)
    hint = f"; {_HINTS[code]}" if code in _HINTS else ""
    said = f"HTTP {status}" if code in ("", str(status)) else f"{code} (HTTP {status})"
    return DocumentFault(kind, f"could not {action} {url}: S3 answered {said}{hint}")


def _code_of(error: Any) -> str:
    response = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


def _bucket_of(url: str) -> str:
    return url.partition("://")[2].partition("/")[0]


SCHEME = "s3://"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
# Postgres stores no NUL. What would read as its escape gets one `25` more, so keys never collide.
_LOOKS_ESCAPED = re.compile("%(?=(?:25)*00)")
_ESCAPED = re.compile("%25(?=(?:25)*00)")


@dataclass(frozen=True, slots=True)
class S3Listing:
    """The objects below `s3://bucket/prefix`, in S3's own order.

    As everywhere in S3, `…/cvs` is the beginning of a key and also finds `cvs-2024/a.pdf`, while
    `…/cvs/` finds only what is in that folder.
    """

    location: str
    client: Any = field(repr=False)
    kind: str = field(default="s3", init=False)

    def __post_init__(self) -> None:
        bucket, prefix = parse_s3_location(self.location)
        object.__setattr__(self, "location", f"{SCHEME}{bucket}/{prefix}")

    def list(self) -> Iterator[Listed]:
        bucket, prefix = parse_s3_location(self.location)
        folder_length = prefix.rfind("/") + 1
        entries = list_bucket(self.client, bucket, prefix, "list", "the source", listing=True)
        for entry in entries:
            key = str(entry["Key"])
            if not (key.endswith("/") and entry["Size"] == 0):
                yield Listed(_escape_key(key[folder_length:]), object_url(bucket, key))


def is_s3_location(text: str) -> bool:
    """Whether the text is meant as an S3 location."""
    return text[: len(SCHEME)].lower() == SCHEME


def parse_s3_location(text: str) -> tuple[str, str]:
    """Bucket and prefix of `s3://bucket/prefix`; a prefix is taken as it stands."""
    bucket, _, prefix = text[len(SCHEME) :].partition("/")
    if not is_s3_location(text) or not _BUCKET.fullmatch(bucket):
        # The text is not repeated: it may hold credentials in the place of the bucket.
        raise UsageError(
            "an S3 location is written s3://bucket/prefix, with letters, digits, dots and hyphens "
            "in the bucket's name; credentials and server are set by PENSTOCK_S3_ACCESS_KEY_ID, "
            "PENSTOCK_S3_SECRET_ACCESS_KEY and PENSTOCK_S3_ENDPOINT_URL"
        )
    try:
        prefix.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the prefix of {SCHEME}{bucket}/… is not UTF-8; keys are") from error
    return bucket, prefix


def object_url(bucket: str, key: str) -> str:
    """The key as it stands, because it may hold any character and escapes of its own."""
    return f"{SCHEME}{bucket}/{_escape_key(key)}"


def split_object_url(url: str) -> tuple[str, str]:
    """Bucket and key of what `object_url` made."""
    bucket, _, escaped = url.removeprefix(SCHEME).partition("/")
    return bucket, _ESCAPED.sub("%", re.sub("%00", "\x00", escaped))


def _escape_key(key: str) -> str:
    return _LOOKS_ESCAPED.sub("%25", key).replace("\x00", "%00")
