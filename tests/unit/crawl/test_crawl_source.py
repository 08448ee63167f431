import os
from pathlib import Path

import pytest

from penstock.crawl.fetch import Fetcher
from penstock.crawl.source import recognise_source
from penstock.crawl.urllist import UrlListListing
from penstock.errors import ListingFailed, UsageError


def kind_of(source: object, fetcher: Fetcher) -> str:
    return recognise_source(str(source), fetcher).kind


def test_a_folder_is_a_folder(tmp_path: Path, fetcher: Fetcher) -> None:
    assert kind_of(tmp_path, fetcher) == "folder"


def test_a_file_of_urls_is_a_url_list(tmp_path: Path, fetcher: Fetcher) -> None:
    path = tmp_path / "urls"
    path.write_bytes(b"\xef\xbb\xbf# pages\r\n\r\nhttps://a.test/1\r\n  HTTP://b.test/2\r\n")
    listing = recognise_source(str(path), fetcher)
    assert listing.kind == "url_list"
    assert listing.name == str(path)
    assert [found.external_id for found in listing.list()] == [
        "https://a.test/1",
        "http://b.test/2",
    ]


def test_the_same_url_is_listed_once(tmp_path: Path) -> None:
    path = tmp_path / "urls"
    path.write_text("https://a.test/x\nhttps://A.test:443/x#top\n")
    assert len(list(UrlListListing(path).list())) == 1


@pytest.mark.parametrize(
    "content",
    [b"", b"# only a comment\n", b"https://a.test/ and more", b"\x00\x01\xff", b"x" * 100_000],
)
def test_any_other_file_is_one_document(tmp_path: Path, fetcher: Fetcher, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert kind_of(path, fetcher) == "file"


@pytest.mark.timeout(10)
def test_a_pipe_does_not_block(tmp_path: Path, fetcher: Fetcher) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert kind_of(tmp_path / "pipe", fetcher) == "file"


def test_a_url_list_that_changed_meanwhile_fails_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "urls"
    path.write_text("https://a.test/\nnonsense\n")
    with pytest.raises(ListingFailed, match="line 2"):
        list(UrlListListing(path).list())


def test_a_url_list_that_is_gone_fails(tmp_path: Path) -> None:
    with pytest.raises(ListingFailed, match="could not read"):
        list(UrlListListing(tmp_path / "gone").list())


def test_a_site_is_named_by_its_normalised_url(fetcher: Fetcher) -> None:
    listing = recognise_source("HTTPS://Example.TEST:443/Jobs/#all", fetcher)
    assert (listing.kind, listing.name) == ("site", "https://example.test/Jobs/")
    assert listing.location == listing.name


@pytest.mark.parametrize(
    "source",
    ["/no/such/place", "s3://bucket/prefix", "", "a\x00b", "x" * 5000, "https://", "http://a b/"],
)
def test_anything_else_is_named_and_refused(fetcher: Fetcher, source: str) -> None:
    with pytest.raises(UsageError):
        recognise_source(source, fetcher)


def test_a_refusal_says_what_a_source_may_be(fetcher: Fetcher) -> None:
    with pytest.raises(UsageError, match=r"/no/such/place.*SOURCE may be a folder"):
        recognise_source("/no/such/place", fetcher)


def test_a_url_with_a_password_is_refused_without_repeating_it(fetcher: Fetcher) -> None:
    with pytest.raises(UsageError) as caught:
        recognise_source("https://me:hunter2@a.test/", fetcher)
    assert "hunter2" not in str(caught.value)
