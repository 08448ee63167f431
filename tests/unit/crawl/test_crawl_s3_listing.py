"""A bucket as a source."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.crawl.s3 import (
    S3Access,
    S3Listing,
    is_s3_location,
    object_url,
    parse_s3_location,
    split_object_url,
)
from penstock.errors import ListingFailed, UsageError
from tests.s3 import Reply, fill, script

ODD_KEYS = [
    "a//b",
    "a/b",
    "a b",
    "a+b",
    "a%20b",
    "a%2Fb",
    "a%2fb",
    "ä",
    "a\u0308",
    "/lead",
    "lead",
    "..",
    "../x",
    "a/../b",
    ".",
    "a/./b",
    ".hidden",
    "x?y=1#z",
    "<&>",
    "a\tb",
    "a\x01b",
    "a\x00b",
    "a\ufffdb",
    "a%00b",
    "a%2500b",
    "😀",
    " ",
    "\\",
]


def put(s3: Any, bucket: str, *keys: str) -> None:
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")


def ids(listing: S3Listing) -> list[str]:
    return [listed.external_id for listed in listing.list()]


def test_ids_are_relative_to_the_folder_of_the_prefix(s3: Any, bucket: str) -> None:
    put(s3, bucket, "cvs/2024/a.pdf", "cvs/2024/deep/b.pdf", "cvs/2025/c.pdf", "other/d.pdf")
    found = {
        prefix: ids(S3Listing(f"s3://{bucket}/{prefix}", s3))
        for prefix in ("cvs/2024/", "cvs/2024", "cvs/20", "cvs/2024/a.pdf")
    }
    assert found == {
        "cvs/2024/": ["a.pdf", "deep/b.pdf"],
        "cvs/2024": ["2024/a.pdf", "2024/deep/b.pdf"],
        "cvs/20": ["2024/a.pdf", "2024/deep/b.pdf", "2025/c.pdf"],
        "cvs/2024/a.pdf": ["a.pdf"],
    }


def test_a_whole_bucket_can_be_listed(s3: Any, bucket: str) -> None:
    put(s3, bucket, "b", "a/c")
    (first, second) = S3Listing(f"s3://{bucket}", s3).list()
    assert (first.external_id, first.url) == ("a/c", f"s3://{bucket}/a/c")
    assert (second.external_id, second.url) == ("b", f"s3://{bucket}/b")


@pytest.mark.parametrize("written", ["s3://mills", "s3://mills/", "S3://mills"])
def test_a_location_has_one_spelling(written: str) -> None:
    listing = S3Listing(written, None)
    assert listing.kind == "s3"
    assert listing.location == "s3://mills/"


def test_placeholders_of_folders_are_left_out_but_not_documents_that_look_like_them(
    s3: Any, bucket: str
) -> None:
    put(s3, bucket, "cvs/a.pdf", "cvs/odd/")
    s3.put_object(Bucket=bucket, Key="cvs/", Body=b"")
    s3.put_object(Bucket=bucket, Key="cvs/empty.txt", Body=b"")
    assert ids(S3Listing(f"s3://{bucket}/cvs/", s3)) == ["a.pdf", "empty.txt", "odd/"]


def test_nothing_below_a_prefix_is_an_empty_listing(s3: Any, bucket: str) -> None:
    put(s3, bucket, "a")
    assert ids(S3Listing(f"s3://{bucket}/none/", s3)) == []


def test_a_listing_goes_over_all_pages_in_order(s3: Any, bucket: str) -> None:
    keys = [f"{number:04}" for number in range(1500)]
    fill(bucket, keys)
    asked = script(s3, "ListObjectsV2")
    assert ids(S3Listing(f"s3://{bucket}/", s3)) == keys
    assert len(asked) == 2


def test_unusual_keys_stay_distinct_and_name_their_objects(s3: Any, bucket: str) -> None:
    for key in ODD_KEYS:
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    found = list(S3Listing(f"s3://{bucket}/", s3).list())
    assert len(found) == len(ODD_KEYS)
    assert len({listed.external_id for listed in found}) == len(ODD_KEYS)
    assert {split_object_url(listed.url) for listed in found} == {(bucket, k) for k in ODD_KEYS}
    assert not any("\x00" in listed.external_id + listed.url for listed in found)


@given(st.text(alphabet="%025\x00a/", max_size=12), st.text(alphabet="%025\x00a/", max_size=12))
def test_two_keys_never_have_one_url(a: str, b: str) -> None:
    assert (object_url("mills", a) == object_url("mills", b)) == (a == b)
    assert split_object_url(object_url("mills", a)) == ("mills", a)


@given(st.text(st.characters(exclude_characters="\x00%", exclude_categories=["Cs"])))
def test_ordinary_keys_stand_in_urls_as_they_are(key: str) -> None:
    assert object_url("mills", key) == f"s3://mills/{key}"


@pytest.mark.parametrize("code", ["AccessDenied", "NoSuchBucket", "InvalidRequest"])
def test_what_cannot_be_listed_is_never_an_empty_listing(s3: Any, bucket: str, code: str) -> None:
    script(s3, "ListObjectsV2", Reply(403, code))
    with pytest.raises(ListingFailed, match=bucket):
        ids(S3Listing(f"s3://{bucket}/", s3))


def test_a_bucket_that_does_not_exist_cannot_be_listed(s3: Any) -> None:
    with pytest.raises(ListingFailed, match=r"no bucket 'nowhere-at-all'.*correct the source"):
        ids(S3Listing("s3://nowhere-at-all/x", s3))


def test_a_listing_that_fails_midway_says_so(s3: Any, bucket: str) -> None:
    fill(bucket, [f"{number:04}" for number in range(1001)])
    script(s3, "ListObjectsV2", None, Reply(403, "AccessDenied"))
    listing = S3Listing(f"s3://{bucket}/", s3).list()
    assert [next(listing).external_id for _ in range(1000)][-1] == "0999"
    with pytest.raises(ListingFailed, match="AccessDenied"):
        next(listing)


@pytest.mark.parametrize("body", [b"", b"<html><body>Welcome</body></html>"])
def test_a_response_of_another_server_is_not_an_empty_listing(
    s3: Any, bucket: str, body: bytes
) -> None:
    script(s3, "ListObjectsV2", Reply(body=body))
    with pytest.raises(ListingFailed, match=r"not one of an S3 server.*PENSTOCK_S3_ENDPOINT_URL"):
        ids(S3Listing(f"s3://{bucket}/", s3))


def test_s3_locations_are_recognised_by_their_scheme() -> None:
    assert is_s3_location("s3://mills/a")
    assert is_s3_location("S3://mills")
    assert not is_s3_location("https://mills.s3.amazonaws.com/a")
    assert not is_s3_location("s3:/mills")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("s3://mills", ("mills", "")),
        ("s3://mills/", ("mills", "")),
        ("s3://mills/a/b", ("mills", "a/b")),
        ("s3://mills//a", ("mills", "/a")),
        ("s3://my.mills_2-x/a%20b?c#d ", ("my.mills_2-x", "a%20b?c#d ")),
    ],
)
def test_a_location_is_a_bucket_and_a_prefix(text: str, parts: tuple[str, str]) -> None:
    assert parse_s3_location(text) == parts


@pytest.mark.parametrize(
    "text",
    ["s3://", "s3:///a", "s3://a b/c", "s3://-x/", "https://mills/", "mills", "s3://\u00e4\u00f6/"],
)
def test_a_bad_location_comes_with_advice(text: str) -> None:
    with pytest.raises(UsageError, match=r"s3://bucket/prefix"):
        parse_s3_location(text)


@pytest.mark.parametrize("text", ["s3://key:hidden@mills/a", "s3://key:hid/den@mills/a"])
def test_a_key_in_a_location_is_not_repeated(text: str) -> None:
    with pytest.raises(UsageError, match="PENSTOCK_S3_SECRET_ACCESS_KEY") as caught:
        parse_s3_location(text)
    assert "hid" not in str(caught.value)


def test_a_prefix_that_is_no_text_is_refused() -> None:
    with pytest.raises(UsageError, match="not UTF-8"):
        parse_s3_location("s3://mills/\udcff")


def test_a_listing_shows_no_client(s3_access: S3Access) -> None:
    assert "hidden" not in repr(S3Listing("s3://mills/", s3_access))
