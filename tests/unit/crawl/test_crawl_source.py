import os
from pathlib import Path

import pytest

from penstock.crawl.fetch import Fetcher
from penstock.crawl.files import UrlListListing
from penstock.crawl.listing import Listing
from penstock.crawl.site import SiteListing
from penstock.errors import ListingFailed, UsageError
from penstock.sources.finder import KINDS, build_listing, recognise_kind


def recognise(source: str, fetcher: Fetcher) -> Listing:
    return build_listing(recognise_kind(source), source, fetcher)


def kind_of(source: object, fetcher: Fetcher) -> str:
    return recognise(str(source), fetcher).kind


def test_a_folder_is_a_folder(tmp_path: Path, fetcher: Fetcher) -> None:
    assert kind_of(tmp_path, fetcher) == "folder"


def test_a_file_of_urls_is_a_url_list(tmp_path: Path, fetcher: Fetcher) -> None:
    path = tmp_path / "urls"
    path.write_bytes(b"\xef\xbb\xbf# pages\r\n\r\nhttps://a.test/1\r\n  HTTP://b.test/2\r\n")
    listing = recognise(str(path), fetcher)
    assert listing.kind == "url_list"
    assert listing.location == str(path)
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
    listing = recognise("HTTPS://Example.TEST:443/Jobs/#all", fetcher)
    assert (listing.kind, listing.location) == ("site", "https://example.test/Jobs/")


@pytest.mark.parametrize(
    "source",
    ["/no/such/place", "s3://bucket/prefix", "", "a\x00b", "x" * 5000, "https://", "http://a b/"],
)
def test_anything_else_is_named_and_refused(fetcher: Fetcher, source: str) -> None:
    with pytest.raises(UsageError):
        recognise(source, fetcher)


def test_a_refusal_says_what_a_source_may_be(fetcher: Fetcher) -> None:
    with pytest.raises(UsageError, match=r"/no/such/place.*SOURCE may be a folder"):
        recognise("/no/such/place", fetcher)


def test_a_url_with_a_password_is_refused_without_repeating_it(fetcher: Fetcher) -> None:
    with pytest.raises(UsageError) as caught:
        recognise("https://me:hunter2@a.test/", fetcher)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("https://boards.greenhouse.io/acme", "greenhouse"),
        ("HTTPS://Job-Boards.EU.greenhouse.io/acme#jobs", "greenhouse"),
        ("https://boards-api.greenhouse.io/v1/boards/acme/jobs?content=true", "greenhouse"),
        ("https://jobs.lever.co/acme", "lever"),
        ("https://api.eu.lever.co/v0/postings/acme?mode=json", "lever"),
        ("https://jobs.ashbyhq.com/acme", "ashby"),
        ("https://boards.greenhouse.io/acme/jobs/4012345", "site"),
        ("https://acme.test/careers", "site"),
    ],
)
def test_known_job_boards_are_recognised_by_their_url(
    fetcher: Fetcher, source: str, kind: str
) -> None:
    listing = recognise(source, fetcher)
    assert listing.kind == kind
    # A run that is taken up again is told what its source is by the location alone.
    assert kind_of(listing.location, fetcher) == kind


@pytest.mark.parametrize("kind", ["site", "jobs", "greenhouse", "lever", "ashby", "feed"])
def test_a_listing_of_the_web_is_built_by_its_kind(fetcher: Fetcher, kind: str) -> None:
    listing = build_listing(kind, "HTTPS://Acme.TEST:443/jobs#all", fetcher)
    assert (listing.kind, listing.location) == (kind, "https://acme.test/jobs")


@pytest.mark.parametrize("kind", ["site", "jobs"])
def test_a_site_is_built_with_its_link_pattern(fetcher: Fetcher, kind: str) -> None:
    listing = build_listing(kind, "https://acme.test/", fetcher, link_pattern=r"/jobs/\d+")
    assert isinstance(listing, SiteListing)
    assert (listing.kind, listing.link_pattern) == (kind, r"/jobs/\d+")


@pytest.mark.parametrize("kind", ["folder", "file", "url_list"])
def test_a_local_listing_is_built_by_its_kind(fetcher: Fetcher, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "file"
    file.write_text("https://a.test/\n")
    listing = build_listing(kind, str(tmp_path if kind == "folder" else file), fetcher)
    assert listing.kind == kind
    assert len(list(listing.list())) == 1


@pytest.mark.parametrize(
    ("kind", "location", "pattern", "message"),
    [
        ("carrier_pigeon", "https://a.test/", None, "site, jobs, greenhouse, lever, ashby, feed"),
        ("", "https://a.test/", None, "no source of kind"),
        ("site", "/tmp", None, "not a valid URL"),
        ("greenhouse", "acme", None, "not a valid URL"),
        ("lever", "https://me:hunter2@a.test/", None, "user name or password"),
        ("folder", "/no/such/place", None, "cannot use"),
        ("folder", __file__, None, "is not a folder"),
        ("file", str(Path(__file__).parent), None, "is a folder"),
        ("url_list", str(Path(__file__).parent), None, "is a folder"),
        ("feed", "https://a.test/", "x", "link pattern is for"),
        ("folder", "/tmp", "x", "link pattern is for"),
        ("site", "https://a.test/", "(", "'\\('"),
    ],
)
def test_a_listing_that_cannot_be_built_is_a_wrong_use(
    fetcher: Fetcher, kind: str, location: str, pattern: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        build_listing(kind, location, fetcher, link_pattern=pattern)


def test_every_kind_is_named_where_one_is_unknown(fetcher: Fetcher) -> None:
    with pytest.raises(UsageError) as caught:
        build_listing("pigeon", "https://a.test/", fetcher)
    assert all(kind in str(caught.value) for kind in KINDS)


def test_a_folder_may_be_named_from_home(
    tmp_path: Path, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "cvs").mkdir()
    assert recognise("~/cvs", fetcher).location == str(tmp_path / "cvs")
