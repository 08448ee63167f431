"""What goes wrong at S3, in our own words: the one place where botocore's errors are told apart.

What a server says about an error is never repeated, only its code: some echo the key they were
given.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.errors import ConfigurationError, DocumentFault, ErrorClass, ListingFailed

NO_S3_SERVER = "what answered is no S3 server; check PENSTOCK_S3_ENDPOINT_URL"
_GONE = frozenset({"NoSuchKey", "NoSuchVersion", "NotFound", "404"})
_BAD_KEY = frozenset(
    {
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidSecurity",
        "InvalidToken",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
    }
)
_BAD_REGION = frozenset({"301", "AuthorizationHeaderMalformed", "PermanentRedirect"})
_KINDS = {
    "RequestTimeout": ErrorClass.TIMEOUT,
    "SlowDown": ErrorClass.RATE_LIMITED,
    # An archived object answers 403, but nobody has to be granted anything.
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
def explained(action: str, url: str, named_in: str) -> Iterator[None]:
    """Raise what fails inside as the fault of one document, or of the configuration.

    `named_in` says where the bucket's name stands, so that people know what to correct.
    """
    try:
        yield
    except _failures() as error:
        bad_key = _credentials_fault(error, url)
        raise (
            bad_key or _bucket_fault(error, url, named_in) or _fault(error, action, url)
        ) from error


@contextmanager
def listing_explained(location: str) -> Iterator[None]:
    """The same for a whole source, whose bucket is part of what could not be listed."""
    try:
        yield
    except _failures() as error:
        bad_key = _credentials_fault(error, location)
        if bad_key is not None:
            raise bad_key from error
        fault = _bucket_fault(error, location, "the source") or _fault(error, "list", location)
        raise ListingFailed(str(fault)) from error


def status_of(error: Any) -> int:
    """The HTTP status of a `ClientError`."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def is_gone(error: Any) -> bool:
    """Whether a `ClientError` says that the object, not its bucket, is missing."""
    return _code_of(error) in _GONE


def _failures() -> tuple[type[Exception], ...]:
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    return BotoCoreError, ClientError, ResponseParserError


def _credentials_fault(error: Exception, url: str) -> ConfigurationError | None:
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


def _bucket_fault(error: Exception, url: str, named_in: str) -> ConfigurationError | None:
    from botocore.exceptions import ParamValidationError

    bucket, code = _bucket_of(url), _code_of(error)
    if code == "NoSuchBucket" or isinstance(error, ParamValidationError):
        return ConfigurationError(
            f"there is no bucket {bucket!r}: correct {named_in}, or PENSTOCK_S3_ENDPOINT_URL if it "
            "is on another server"
        )
    if code in _BAD_REGION:
        return ConfigurationError(
            f"the bucket {bucket!r} is in another region: set PENSTOCK_S3_REGION to its own"
        )
    return None


def _fault(error: Exception, action: str, url: str) -> DocumentFault:
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        ConnectTimeoutError,
        ReadTimeoutError,
    )

    if isinstance(error, ConnectTimeoutError | ReadTimeoutError):
        return DocumentFault(ErrorClass.TIMEOUT, f"could not {action} {url}: no answer in time")
    if not isinstance(error, ClientError):
        reason = error if isinstance(error, BotoCoreError) else NO_S3_SERVER
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
