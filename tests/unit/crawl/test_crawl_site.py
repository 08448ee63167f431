import gzip
import json
from typing import Any

import pytest

from penstock.crawl import site
from penstock.crawl.fetch import Fetcher
from penstock.crawl.listing import Listed
from penstock.crawl.site import SiteListing
from penstock.crawl.urls import is_below, normalise_url, page_links
from penstock.crawl.xml_lists import Sitemap, XmlListError, parse_sitemap
from penstock.errors import ListingFailed, UsageError

from .scripted import Reply, ScriptedServer

pytestmark = pytest.mark.full_suite

NAMESPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


def urlset(*locations: str) -> str:
    entries = "".join(f"<url><loc> {location}\n</loc></url>" for location in locations)
    return f'<?xml version="1.0" encoding="UTF-8"?><urlset {NAMESPACE}>{entries}</urlset>'


def index(*locations: str) -> str:
    entries = "".join(f"<sitemap><loc>{location}</loc></sitemap>" for location in locations)
    return f"<sitemapindex {NAMESPACE}>{entries}</sitemapindex>"


def pages(fetcher: Fetcher, url: str, link_pattern: str | None = None) -> list[str]:
    return [listed.external_id for listed in SiteListing(url, fetcher, link_pattern).list()]


def test_a_sitemap_lists_its_pages_once(server: ScriptedServer, fetcher: Fetcher) -> None:
    u = server.url
    start = server.page("/map.xml", urlset(f"{u}/a", f"{u}/b#x", f"{u}/b", f"{u}/c?x=1&amp;y=2"))
    assert pages(fetcher, start) == [f"{u}/a", f"{u}/b", f"{u}/c?x=1&y=2"]


def test_a_sitemap_is_recognised_by_its_content(server: ScriptedServer, fetcher: Fetcher) -> None:
    start = server.page("/map", urlset(f"{server.url}/a"))
    assert pages(fetcher, start) == [f"{server.url}/a"]


def test_a_sitemap_index_is_followed_also_when_gzipped(
    server: ScriptedServer, fetcher: Fetcher
) -> None:
    u = server.url
    start = server.page("/map.xml", index(f"{u}/1.xml", f"{u}/2.xml.gz", f"{u}/map.xml"))
    server.page("/1.xml", urlset(f"{u}/a"))
    server.reply("/2.xml.gz", Reply(body=gzip.compress(urlset(f"{u}/a", f"{u}/b").encode())))
    assert pages(fetcher, start) == [f"{u}/a", f"{u}/b"]
    assert len(server.requests_for("/map.xml")) == 1


def test_a_sitemap_that_fails_midway_fails_the_listing(
    server: ScriptedServer, fetcher: Fetcher
) -> None:
    u = server.url
    start = server.page("/map.xml", index(f"{u}/1.xml", f"{u}/2.xml"))
    server.page("/1.xml", urlset(f"{u}/a"))
    server.reply("/2.xml", Reply(500))
    found = SiteListing(start, fetcher).list()
    assert next(found).external_id == f"{u}/a"
    with pytest.raises(ListingFailed, match="HTTP 500"):
        next(found)


def test_sitemaps_nested_too_deep_fail(server: ScriptedServer, fetcher: Fetcher) -> None:
    for number in range(10):
        server.page(f"/{number}.xml", index(f"{server.url}/{number + 1}.xml"))
    with pytest.raises(ListingFailed, match="deep"):
        pages(fetcher, f"{server.url}/0.xml")


@pytest.mark.parametrize(("bound", "word"), [("MAX_SITEMAPS", "sitemaps"), ("MAX_PAGES", "pages")])
def test_bounds_fail_the_listing_instead_of_cutting_it(
    server: ScriptedServer, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch, bound: str, word: str
) -> None:
    monkeypatch.setattr(site, bound, 2)
    u = server.url
    start = server.page("/map.xml", index(*[f"{u}/{number}.xml" for number in range(3)]))
    for number in range(3):
        server.page(f"/{number}.xml", urlset(f"{u}/a{number}", f"{u}/b{number}"))
    with pytest.raises(ListingFailed, match=f"more than 2 {word}"):
        pages(fetcher, start)


@pytest.mark.parametrize("body", ["<html>soft 404</html>", "", "<urlset><url><loc>cut"])
def test_an_xml_url_that_is_no_sitemap_fails(
    server: ScriptedServer, fetcher: Fetcher, body: str
) -> None:
    with pytest.raises(ListingFailed):
        pages(fetcher, server.page("/map.xml", body))


def test_an_unreachable_site_is_not_an_empty_site(server: ScriptedServer, fetcher: Fetcher) -> None:
    with pytest.raises(ListingFailed, match="HTTP 404"):
        pages(fetcher, f"{server.url}/nothing")


def test_the_sitemap_named_by_robots_is_used_below_the_start(
    server: ScriptedServer, fetcher: Fetcher
) -> None:
    u = server.url
    server.page("/robots.txt", f"Sitemap: {u}/maps/all.xml\nSitemap: nonsense\n", "text/plain")
    elsewhere = ("http://other.test/jobs/9", f"{u}/jobsearch", f"{u}/about", "mailto:a@b.test")
    server.page("/maps/all.xml", urlset(f"{u}/jobs/1", *elsewhere, f"{u}/jobs/2"))
    assert pages(fetcher, server.page("/jobs", "<p>jobs")) == [f"{u}/jobs/1", f"{u}/jobs/2"]


def test_the_sitemap_at_the_root_is_found(server: ScriptedServer, fetcher: Fetcher) -> None:
    server.page("/sitemap.xml", urlset(f"{server.url}/jobs/1"))
    assert pages(fetcher, server.page("/jobs/", "<p>jobs")) == [f"{server.url}/jobs/1"]


@pytest.mark.parametrize("missing", [Reply(404), Reply(403), Reply(body=b"<html>soft 404</html>")])
def test_without_a_sitemap_the_page_and_its_links_below_are_listed(
    server: ScriptedServer, fetcher: Fetcher, missing: Reply
) -> None:
    u = server.url
    server.reply("/sitemap.xml", missing)
    links = ["1", "/jobs/2#apply", "1", "/about", "http://other.test/jobs/3", "javascript:x", "//["]
    html = "".join(f'<a href="{link}">x</a>' for link in links)
    start = server.page("/jobs/", html)
    assert pages(fetcher, start) == [start, f"{u}/jobs/1", f"{u}/jobs/2"]


def test_a_sitemap_without_the_wanted_part_falls_back_to_links(
    server: ScriptedServer, fetcher: Fetcher
) -> None:
    server.page("/sitemap.xml", urlset(f"{server.url}/blog/1"))
    start = server.page("/jobs/", '<a href="1">x</a>')
    assert pages(fetcher, start) == [start, f"{server.url}/jobs/1"]


def test_a_site_that_moved_is_listed_where_it_is(server: ScriptedServer, fetcher: Fetcher) -> None:
    u = server.url
    start = server.reply("/jobs", Reply(301, headers={"Location": "/en/jobs/"}))
    server.page("/en/jobs/", '<a href="1">x</a> <a href="/en/jobs/">self</a>')
    assert pages(fetcher, start) == [start, f"{u}/en/jobs/1"]


def test_a_failing_sitemap_is_not_a_missing_one(server: ScriptedServer, fetcher: Fetcher) -> None:
    server.reply("/sitemap.xml", Reply(503))
    with pytest.raises(ListingFailed, match="HTTP 503"):
        pages(fetcher, server.page("/", "<p>x"))


def test_a_document_that_is_no_page_is_listed_alone(
    server: ScriptedServer, fetcher: Fetcher
) -> None:
    start = server.page("/cv.pdf", '%PDF <a href="x">', "application/pdf")
    assert pages(fetcher, start) == [start]


def test_image_locations_are_not_pages() -> None:
    xml = (
        '<urlset xmlns:image="i"><url><loc>http://a.test/1</loc>'
        "<image:image><image:loc>http://a.test/1.png</image:loc></image:image></url></urlset>"
    )
    assert parse_sitemap(xml.encode()) == Sitemap(("http://a.test/1",), is_index=False)


def test_a_prefixed_sitemap_and_cdata_are_read() -> None:
    xml = "<s:urlset xmlns:s='x'><s:url><s:loc><![CDATA[http://a.test/?a&b]]></s:loc></s:url></s:urlset>"
    assert parse_sitemap(xml.encode()) == Sitemap(("http://a.test/?a&b",), is_index=False)


@pytest.mark.parametrize(
    "entity", ['<!ENTITY b "bbbb"><!ENTITY a "&b;&b;">', '<!ENTITY a SYSTEM "file:///etc/passwd">']
)
def test_entities_are_refused(entity: str) -> None:
    xml = f"<!DOCTYPE x [{entity}]><urlset><url><loc>&a;</loc></url></urlset>"
    with pytest.raises(XmlListError, match="entities"):
        parse_sitemap(xml.encode())


@pytest.mark.parametrize(
    ("plain", "cut"), [(bytes(60 << 20), None), (b"<urlset/>", -5)], ids=["too large", "cut off"]
)
def test_a_bad_gzip_sitemap_is_refused(plain: bytes, cut: int | None) -> None:
    with pytest.raises(XmlListError):
        parse_sitemap(gzip.compress(plain)[:cut])


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("HTTP://EXAMPLE.test:80", "http://example.test/"),
        ("https://a.test:443/x/../b/./c?q=1#f", "https://a.test/b/c?q=1"),
        ("https://me:pw@a.test/", "https://a.test/"),
        ("http://a.test:8080?x", "http://a.test:8080/?x"),
        ("http://[::1]:80/", "http://[::1]/"),
        ("http://bücher.test/é", "http://xn--bcher-kva.test/%C3%A9"),
        ("ftp://a.test/", None),
        ("/relative", None),
        ("http://a.test:99999/", None),
    ],
)
def test_urls_have_one_spelling(url: str, normal: str | None) -> None:
    assert normalise_url(url) == normal
    assert normal is None or normalise_url(normal) == normal


@pytest.mark.parametrize(
    ("url", "start", "below"),
    [
        ("http://a.test/jobs/1", "http://a.test/jobs", True),
        ("http://a.test/jobs", "http://a.test/jobs", True),
        ("https://a.test/jobs/1", "http://a.test/jobs/", True),
        ("http://a.test/jobsearch", "http://a.test/jobs", False),
        ("http://b.test/jobs/1", "http://a.test/jobs", False),
        ("http://a.test/jobs/1.html", "http://a.test/jobs/index.html", True),
        ("http://a.test/x", "http://a.test/", True),
    ],
)
def test_a_part_of_a_site_is_recognised_by_its_path(url: str, start: str, below: bool) -> None:
    assert is_below(url, start) is below


def test_links_are_read_against_the_base_of_the_page() -> None:
    html = b'<base href="/deep/"><a href="x">x</a><a>no</a>'
    assert page_links(html, None, "http://a.test/") == [("http://a.test/deep/x", "x")]


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<a href=x>\n Senior <b>Miller</b>\t(m/f) </a>", "Senior Miller (m/f)"),
        ("<a href=x><h3>Miller</h3><p>Ulm</p></a>", "Miller Ulm"),
        (
            "<a href=x><img src=i></a> <a href=x>Miller in Ulm</a> <a href=x>Apply</a>",
            "Miller in Ulm",
        ),
        ("<a href=x><img src=i></a>", None),
        ("<a href=x>M\u00fcller \U0001f3a1\u200b\u0007</a>", "M\u00fcller \U0001f3a1"),
        (f"<a href=x>{'word ' * 100}</a>", ("word " * 60).strip()),
    ],
)
def test_links_come_with_their_text(html: str, text: str | None) -> None:
    assert page_links(html.encode(), None, "http://a.test/") == [("http://a.test/x", text)]


def test_text_in_an_encoding_that_is_not_understood_is_no_text() -> None:
    html = "<a href=x>M\u00fcller</a>".encode("iso-8859-1")
    assert page_links(html, "text/html", "http://a.test/") == [("http://a.test/x", None)]


def test_pages_found_as_links_have_the_text_of_the_link_as_title(
    server: ScriptedServer, fetcher: Fetcher
) -> None:
    start = server.page("/jobs/", '<a href="1">Senior\n Miller</a>')
    assert list(SiteListing(start, fetcher).list()) == [
        Listed(start, start),
        Listed(f"{start}1", f"{start}1", "Senior Miller"),
    ]


def test_a_pattern_chooses_among_the_pages_of_a_sitemap(
    server: ScriptedServer, fetcher: Fetcher
) -> None:
    u = server.url
    start = server.page("/careers", '<a href="/jobs/9">linked</a>')
    other = "http://other.test/jobs/3"
    server.page("/sitemap.xml", urlset(f"{u}/careers", f"{u}/jobs/1", f"{u}/about", other))
    assert pages(fetcher, start, "jobs/|careers") == [f"{u}/jobs/1", other]
    assert pages(fetcher, f"{u}/sitemap.xml", r"/jobs/\d$") == [f"{u}/jobs/1", other]


@pytest.mark.parametrize("sitemap", [None, "/about"])
def test_a_pattern_chooses_among_the_links_where_no_sitemap_has_a_match(
    server: ScriptedServer, fetcher: Fetcher, sitemap: str | None
) -> None:
    if sitemap is not None:
        server.page("/sitemap.xml", urlset(server.url + sitemap))
    links = ["/jobs/1", "http://other.test/jobs/2", "/about", "/jobs/", "mailto:jobs/x@a.test"]
    start = server.page("/jobs/", "".join(f'<a href="{link}">to {link}</a>' for link in links))
    assert list(SiteListing(start, fetcher, "/jobs/").list()) == [
        Listed(f"{start}1", f"{start}1", "to /jobs/1"),
        Listed(
            "http://other.test/jobs/2", "http://other.test/jobs/2", "to http://other.test/jobs/2"
        ),
    ]


def test_a_pattern_that_nothing_matches_lists_nothing(
    server: ScriptedServer, fetcher: Fetcher
) -> None:
    assert pages(fetcher, server.page("/jobs/", '<a href="1">x</a>'), "vacancies") == []


@pytest.mark.parametrize(
    "pattern", ["(", "[", "*", "(?P<x>a)(?P<x>b)", "a{99999999999}", "(" * 5000]
)
def test_a_pattern_that_is_none_is_named(fetcher: Fetcher, pattern: str) -> None:
    with pytest.raises(UsageError) as caught:
        SiteListing("https://a.test/", fetcher, pattern)
    assert repr(pattern) in str(caught.value)


@pytest.mark.parametrize(
    ("board", "ids"),
    [
        (
            {"jobs": [{"id": 7, "title": "Miller", "absolute_url": "/jobs/7", "content": "x"}]},
            ["7"],
        ),
        ([{"id": "u-1", "text": "Miller", "hostedUrl": "https://jobs.lever.co/a/u-1"}], ["u-1"]),
        ({"jobs": [{"id": "u-2", "title": "M", "jobUrl": "/j"}], "apiVersion": "1"}, ["u-2"]),
        ({"jobs": [], "meta": {"total": 0}}, []),
    ],
)
def test_a_job_board_is_recognised_by_its_content(
    server: ScriptedServer, fetcher: Fetcher, board: Any, ids: list[str]
) -> None:
    start = server.page("/api/jobs", json.dumps(board), "application/json")
    found = list(SiteListing(start, fetcher).list())
    assert [listed.external_id for listed in found] == ids
    assert all(listed.content for listed in found)
    assert len(server.requests_for("/api/jobs")) == 1


def test_a_broken_job_board_is_not_taken_for_a_document(
    server: ScriptedServer, fetcher: Fetcher
) -> None:
    jobs = [{"id": 7, "title": "Miller", "absolute_url": "/jobs/7"}, {"id": 8}]
    start = server.page("/api/jobs", json.dumps({"jobs": jobs}), "application/json")
    with pytest.raises(ListingFailed, match="job 2, with the id 8, has no title"):
        pages(fetcher, start)


def test_other_json_is_a_document(server: ScriptedServer, fetcher: Fetcher) -> None:
    start = server.page("/cv.json", '{"name": "Ada", "jobs": ["Miller"]}', "application/json")
    assert pages(fetcher, start) == [start]


@pytest.mark.parametrize("path", ["/feed", "/feed.xml"])
def test_a_feed_is_recognised_by_its_content(
    server: ScriptedServer, fetcher: Fetcher, path: str
) -> None:
    items = "".join(f"<item><title>{n}</title><link>/{n}</link></item>" for n in ("a", "b"))
    start = server.page(path, f"<rss><channel>{items}</channel></rss>", "application/rss+xml")
    assert pages(fetcher, start) == [f"{server.url}/a", f"{server.url}/b"]
    assert pages(fetcher, start, "/b$") == [f"{server.url}/b"]


def test_a_broken_feed_is_not_taken_for_a_document(
    server: ScriptedServer, fetcher: Fetcher
) -> None:
    start = server.page("/feed", "<rss><channel><item><link>/a</link></item>")
    with pytest.raises(ListingFailed, match="no element found"):
        pages(fetcher, start)
