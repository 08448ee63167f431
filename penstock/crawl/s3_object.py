"""The bytes of one object in S3."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from penstock.crawl.compression import CODINGS, CompressionError
from penstock.crawl.fetch import Fetched, Marks, NotModified
from penstock.crawl.retry import HttpFault
from penstock.crawl.s3_listing import split_object_url
from penstock.crawl.s3_trouble import explained, status_of
from penstock.errors import DocumentFault, ErrorClass

_NAMED_IN = "the source"
_CHUNK_BYTES = 1 << 16
_NOT_MODIFIED = 304


def fetch_object(client: Any, url: str, marks: Marks, max_bytes: int) -> Fetched | NotModified:
    """What is at an `s3://` URL, unless it still has the ETag of the marks."""
    answer = _ask(client, url, marks)
    if answer is None:
        return NotModified()
    with closing(answer["Body"]) as body:
        _check_size(answer.get("ContentLength", 0), url, max_bytes)
        packed = _bounded(_pieces(body, url), url, max_bytes)
        unpacked = _unpacked(answer.get("ContentEncoding", ""), packed, url)
        content = b"".join(_bounded(unpacked, url, max_bytes))
    changed_at = answer["ResponseMetadata"]["HTTPHeaders"].get("last-modified")
    return Fetched(content, answer.get("ContentType"), answer.get("ETag"), changed_at, url)


def _ask(client: Any, url: str, marks: Marks) -> dict[str, Any] | None:
    """The answer with its body still to be read; None when nothing has changed."""
    bucket, key = split_object_url(url)
    condition = {"IfNoneMatch": marks.etag} if marks.etag else {}
    with explained("fetch", url, _NAMED_IN):
        try:
            answer: dict[str, Any] = client.get_object(Bucket=bucket, Key=key, **condition)
        except client.exceptions.ClientError as error:
            if condition and status_of(error) == _NOT_MODIFIED:
                return None
            raise
    return answer


def _pieces(body: Any, url: str) -> Iterator[bytes]:
    try:
        with explained("fetch", url, _NAMED_IN):
            yield from body.iter_chunks(_CHUNK_BYTES)
    except DocumentFault as torn:
        # The client repeats requests by itself, but not a transfer that broke off.
        raise HttpFault(torn.kind, str(torn)) from torn


def _unpacked(coding: str, pieces: Iterator[bytes], url: str) -> Iterator[bytes]:
    # Some uploaders leave the coding of their own transfer behind.
    named = {one.strip() for one in coding.lower().split(",")} - {"", "identity", "aws-chunked"}
    if len(named) > 1 or named - CODINGS.keys():
        message = f"{url} has the content coding {coding!r}, which is not known"
        raise DocumentFault(ErrorClass.UNSUPPORTED, message)
    try:
        yield from CODINGS[named.pop()](pieces) if named else pieces
    except CompressionError as error:
        message = f"{url} cannot be unpacked as {coding}: {error}"
        raise DocumentFault(ErrorClass.CORRUPTION, message) from error


def _bounded(pieces: Iterator[bytes], url: str, max_bytes: int) -> Iterator[bytes]:
    size = 0
    for piece in pieces:
        size += len(piece)
        _check_size(size, url, max_bytes)
        yield piece


def _check_size(size: int, url: str, max_bytes: int) -> None:
    if size > max_bytes:
        raise DocumentFault(
            ErrorClass.TOO_LARGE,
            f"{url} has at least {size} bytes, more than the {max_bytes} allowed; "
            "raise PENSTOCK_MAX_DOCUMENT_BYTES to accept it",
        )
