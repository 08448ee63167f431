"""The bytes of objects, through the same door as pages and files."""

import gzip
from typing import Any

import pytest

from penstock.crawl.fetch import Fetched, Fetcher, Marks, NotModified
from penstock.crawl.listing import Listed
from penstock.crawl.s3 import S3Listing, object_url
from penstock.errors import ConfigurationError, DocumentFault, ErrorClass
from tests.s3 import Reply, script

from .conftest import MakeFetcher


@pytest.fixture
def fetcher(make_fetcher: MakeFetcher, s3: Any) -> Fetcher:
    return make_fetcher(s3=lambda: s3, max_bytes=1000)


def put(s3: Any, bucket: str, key: str, body: bytes, **more: str) -> Listed:
    s3.put_object(Bucket=bucket, Key=key, Body=body, **more)
    return Listed(key, object_url(bucket, key))


def fault_of(fetcher: Fetcher, listed: Listed) -> DocumentFault:
    with pytest.raises(DocumentFault) as caught:
        fetcher.fetch(listed)
    return caught.value


def test_an_object_comes_with_its_type_and_marks(s3: Any, bucket: str, fetcher: Fetcher) -> None:
    listed = put(s3, bucket, "a b.html", b"<p>hi", ContentType="text/html; charset=utf-8")
    fetched = fetcher.fetch(listed)
    assert isinstance(fetched, Fetched)
    assert fetched.content == b"<p>hi"
    assert fetched.media_type == "text/html; charset=utf-8"
    assert fetched.final_url == listed.url
    assert fetched.etag == s3.head_object(Bucket=bucket, Key="a b.html")["ETag"]
    assert str(fetched.last_modified).endswith("GMT")


def test_an_unchanged_object_is_not_sent_again(s3: Any, bucket: str, fetcher: Fetcher) -> None:
    listed = put(s3, bucket, "a", b"old")
    first = fetcher.fetch(listed)
    assert isinstance(first, Fetched)
    marks = Marks(first.etag, first.last_modified)
    assert fetcher.fetch(listed, marks) == NotModified()
    put(s3, bucket, "a", b"new")
    second = fetcher.fetch(listed, marks)
    assert isinstance(second, Fetched)
    assert second.content == b"new"


def test_objects_of_odd_keys_are_the_ones_that_come(s3: Any, bucket: str, fetcher: Fetcher) -> None:
    for key in ("a//b", "a/b", "a%2Fb", "/a", "a\x00b", "a%00b", "a?b#c", "ä"):
        put(s3, bucket, key, key.encode())
    for listed in S3Listing(f"s3://{bucket}/", s3).list():
        fetched = fetcher.fetch(listed)
        assert isinstance(fetched, Fetched)
        assert listed.url == object_url(bucket, fetched.content.decode())


def test_a_missing_object_is_unavailable(bucket: str, fetcher: Fetcher) -> None:
    fault = fault_of(fetcher, Listed("a", f"s3://{bucket}/a"))
    assert fault.kind is ErrorClass.UNAVAILABLE
    assert str(fault) == f"s3://{bucket}/a is no longer there"


def test_a_forbidden_object_is_not_retried(s3: Any, bucket: str, fetcher: Fetcher) -> None:
    asked = script(s3, "GetObject", Reply(403, "AccessDenied"))
    fault = fault_of(fetcher, put(s3, bucket, "a", b"x"))
    assert fault.kind is ErrorClass.FORBIDDEN
    assert "grant it" in str(fault)
    assert len(asked) == 1


def test_a_missing_bucket_is_a_configuration_error(fetcher: Fetcher) -> None:
    with pytest.raises(ConfigurationError, match="no bucket 'nowhere-at-all'"):
        fetcher.fetch(Listed("a", "s3://nowhere-at-all/a"))


def test_a_large_object_is_refused_before_it_is_read(
    s3: Any, bucket: str, fetcher: Fetcher
) -> None:
    fault = fault_of(fetcher, put(s3, bucket, "a", b"x" * 1001))
    assert fault.kind is ErrorClass.TOO_LARGE
    assert "PENSTOCK_MAX_DOCUMENT_BYTES" in str(fault)
    assert isinstance(fetcher.fetch(put(s3, bucket, "b", b"x" * 1000)), Fetched)


def test_an_object_that_is_larger_than_it_said_is_refused_while_it_is_read(
    s3: Any, fetcher: Fetcher
) -> None:
    script(s3, "GetObject", Reply(body=b"x" * 200_000))
    assert fault_of(fetcher, Listed("a", "s3://mills/a")).kind is ErrorClass.TOO_LARGE


def test_a_packed_object_is_unpacked(s3: Any, bucket: str, fetcher: Fetcher) -> None:
    packed = put(s3, bucket, "a", gzip.compress(b"<p>hi"), ContentEncoding="gzip,aws-chunked")
    fetched = fetcher.fetch(packed)
    assert isinstance(fetched, Fetched)
    assert fetched.content == b"<p>hi"


@pytest.mark.parametrize(
    ("body", "coding", "kind"),
    [
        pytest.param(gzip.compress(b"x" * 1001), "gzip", ErrorClass.TOO_LARGE, id="too-large"),
        (b"no gzip", "gzip", ErrorClass.CORRUPTION),
        (b"x", "zstd", ErrorClass.UNSUPPORTED),
        (b"x", "gzip, br", ErrorClass.UNSUPPORTED),
    ],
)
def test_a_fault_names_why_an_object_cannot_be_unpacked(
    s3: Any, bucket: str, fetcher: Fetcher, body: bytes, coding: str, kind: ErrorClass
) -> None:
    assert fault_of(fetcher, put(s3, bucket, "a", body, ContentEncoding=coding)).kind is kind


def test_a_transfer_that_breaks_off_is_tried_again(
    s3: Any, bucket: str, fetcher: Fetcher, naps: list[float]
) -> None:
    listed = put(s3, bucket, "a", b"whole")
    torn = Reply(body=b"who", headers={"content-length": "5"})
    script(s3, "GetObject", torn, torn)
    fetched = fetcher.fetch(listed)
    assert isinstance(fetched, Fetched)
    assert fetched.content == b"whole"
    assert len(naps) == 2


def test_the_client_is_made_when_the_first_object_is_fetched(
    s3: Any, bucket: str, make_fetcher: MakeFetcher
) -> None:
    made = []

    def make() -> Any:
        made.append(s3)
        return s3

    fetcher = make_fetcher(s3=make)
    assert not made
    for key in "ab":
        fetcher.fetch(put(s3, bucket, key, b"x"))
    assert len(made) == 1


def test_without_a_client_buckets_are_not_fetched(make_fetcher: MakeFetcher) -> None:
    assert fault_of(make_fetcher(), Listed("a", "s3://mills/a")).kind is not ErrorClass.UNAVAILABLE
