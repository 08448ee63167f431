"""Feeds are told from other content, and list the pages of their entries."""

import gzip
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.crawl.fetch import Fetcher
from penstock.crawl.listing import Listed
from penstock.crawl.site import FeedListing
from penstock.crawl.xml_lists import FeedEntry, XmlListError, parse_feed
from penstock.errors import ListingFailed

from .scripted import Reply, ScriptedServer

URL = "https://a.test/news/feed"


def rss(*items: str) -> str:
    head = "<title>Mills</title><link>https://a.test/</link><description>d</description>"
    return (
        '<?xml version="1.0" encoding="UTF-8"?><rss version="2.0" '
        'xmlns:atom="http://www.w3.org/2005/Atom" xmlns:media="http://search.yahoo.com/mrss/">'
        f'<channel>{head}<atom:link rel="self" href="https://a.test/feed"/>'
        f"<image><title>i</title><link>https://a.test/i</link></image>{''.join(items)}</channel></rss>"
    )


def item(inside: str) -> str:
    return f"<item>{inside}</item>"


def rdf(*items: str) -> str:
    spaces = 'xmlns="http://purl.org/rss/1.0/" xmlns:dc="http://purl.org/dc/elements/1.1/"'
    return (
        f'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" {spaces}>'
        '<channel rdf:about="https://a.test/"><title>Mills</title><link>https://a.test/</link>'
        '<items><rdf:Seq><rdf:li resource="https://a.test/1"/></rdf:Seq></items></channel>'
        f"{''.join(items)}</rdf:RDF>"
    )


def atom(*entries: str, attributes: str = "") -> str:
    return (
        f'<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom" {attributes}>'
        '<title>Mills</title><id>urn:mills</id><link href="https://a.test/"/>'
        f"{''.join(f'<entry>{entry}</entry>' for entry in entries)}</feed>"
    )


def entries(xml: str | bytes) -> list[FeedEntry]:
    feed = parse_feed(xml.encode() if isinstance(xml, str) else xml, URL)
    assert feed is not None
    return list(feed.entries)


def test_rss_entries_are_named_by_their_guid_and_lead_to_their_link() -> None:
    xml = rss(
        item(
            "<title>\n Wheel  turns &amp; turns </title><link> https://a.test/1#top </link>"
            '<guid isPermaLink="false">tag:1</guid><media:title>other</media:title>'
            '<atom:link href="https://a.test/other"/><description>&lt;b&gt;d&lt;/b&gt;</description>'
        )
    )
    assert entries(xml) == [FeedEntry("tag:1", "https://a.test/1", "Wheel turns & turns")]


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ("<link>https://a.test/1</link>", FeedEntry("", "https://a.test/1", None)),
        (
            "<link/><link>https://a.test/1</link><link>https://a.test/2</link>",
            FeedEntry("", "https://a.test/1", None),
        ),
        ("<link>../1</link>", FeedEntry("", "https://a.test/1", None)),
        ("<link><![CDATA[/1?a&b]]></link>", FeedEntry("", "https://a.test/1?a&b", None)),
        (
            "<guid>https://a.test/1</guid>",
            FeedEntry("https://a.test/1", "https://a.test/1", None),
        ),
        (
            '<guid isPermaLink="true">https://a.test/1</guid>',
            FeedEntry("https://a.test/1", "https://a.test/1", None),
        ),
        (
            '<guid isPermaLink="FALSE">https://a.test/1</guid>',
            FeedEntry("https://a.test/1", None, None),
        ),
        ("<guid>post-17</guid>", FeedEntry("post-17", None, None)),
        ("<link>javascript:x</link>", FeedEntry("", None, None)),
        ("<link>http://[</link>", FeedEntry("", None, None)),
        ("<title> </title>", FeedEntry("", None, None)),
        (
            "<source><title>s</title><link>https://s.test/</link></source>",
            FeedEntry("", None, None),
        ),
    ],
)
def test_rss_entries_are_read_in_their_shapes(inside: str, expected: FeedEntry) -> None:
    assert entries(rss(item(inside))) == [expected]


def test_rss_1_entries_stand_beside_the_channel() -> None:
    xml = rdf(
        '<item rdf:about="https://a.test/1"><title>One</title><link>https://a.test/1?x</link>'
        "<dc:title>other</dc:title></item>",
        '<item rdf:about="https://a.test/2"><title>Two</title></item>',
    )
    assert entries(xml) == [
        FeedEntry("https://a.test/1", "https://a.test/1?x", "One"),
        FeedEntry("https://a.test/2", "https://a.test/2", "Two"),
    ]


def test_atom_entries_lead_to_their_alternate() -> None:
    xml = atom(
        '<id>urn:1</id><link rel="self" href="https://a.test/1.atom"/>'
        '<link rel="enclosure" href="https://a.test/1.mp3"/><link rel="alternate" href="/1"/>'
        '<title type="xhtml"><div>One <b>wheel</b></div></title>'
        "<source><id>urn:other</id><title>other</title></source>",
        '<id>urn:2</id><link href="2"/><title>Two</title><content>x</content>',
        '<title>No id</title><link href="https://b.test/3"/>',
        '<id>https://a.test/4</id><title>No link</title><link rel="alternate"/>',
    )
    assert entries(xml) == [
        FeedEntry("urn:1", "https://a.test/1", "One wheel"),
        FeedEntry("urn:2", "https://a.test/news/2", "Two"),
        FeedEntry("", "https://b.test/3", "No id"),
        FeedEntry("https://a.test/4", None, "No link"),
    ]


def test_links_are_read_against_the_bases_around_them() -> None:
    xml = atom(
        '<link xml:base="deep/" href="x"/>',
        '<link href="y"/>',
        attributes='xml:base="https://b.test/blog/"',
    )
    assert [entry.url for entry in entries(xml)] == [
        "https://b.test/blog/deep/x",
        "https://b.test/blog/y",
    ]


def test_prefixes_do_not_matter() -> None:
    xml = (
        '<a:feed xmlns:a="http://www.w3.org/2005/Atom"><a:entry><a:id>1</a:id><title>no</title>'
        '<a:link href="/1"/><a:title>One</a:title></a:entry></a:feed>'
    )
    assert entries(xml) == [FeedEntry("1", "https://a.test/1", "One")]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"plain text",
        b"<html><body>x</body></html>",
        b"<urlset/>",
        b"<feed><entry/></feed>",
        b'<feed xmlns="https://shop.test/products"/>',
        b'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"/>',
        b'{"jobs": []}',
        b"%PDF-1.7 \x00\xff",
        b"\xff\xfe\x00\x00",
        b'<?xml version="1.0" encoding="Shift_JIS"?><rss/>',
        b'<?xml version="1.0" encoding="nonsense"?><rss/>',
        pytest.param(gzip.compress(b"<html/>"), id="packed html"),
    ],
)
def test_other_content_is_no_feed(content: bytes) -> None:
    assert parse_feed(content, URL) is None


@pytest.mark.parametrize("encode", [gzip.compress, lambda xml: b"\n  " + xml])
def test_packed_feeds_and_feeds_below_blank_lines_are_read(encode: object) -> None:
    assert callable(encode)
    assert len(entries(encode(rss(item("<link>/1</link>")).encode()))) == 1


@pytest.mark.parametrize("encoding", ["utf-16", "iso-8859-1", "windows-1252", "utf-8-sig"])
def test_encodings_are_understood(encoding: str) -> None:
    declared = encoding.removesuffix("-sig")
    xml = rss(item("<title>Mühle</title>")).replace('"UTF-8"', f'"{declared}"')
    assert entries(xml.encode(encoding))[0].title == "Mühle"


@pytest.mark.parametrize(
    "content",
    [
        b"<rss><channel><item><link>cut",
        b"<rss><channel></rss>",
        b"<rss><channel><title>\xff</title></channel></rss>",
        b"<rss><channel><title>&nbsp;</title></channel></rss>",
    ],
)
def test_a_broken_feed_is_refused(content: bytes) -> None:
    with pytest.raises(XmlListError):
        parse_feed(content, URL)


@pytest.mark.parametrize(
    "entity",
    [
        '<!ENTITY b "bbbb"><!ENTITY a "&b;&b;">',
        '<!ENTITY a SYSTEM "file:///etc/passwd">',
        '<!ENTITY % a SYSTEM "https://evil.test/dtd"> %a;',
    ],
)
def test_entities_are_refused(entity: str) -> None:
    xml = f"<!DOCTYPE x [{entity}]><rss><channel><item><title>&a;</title></item></channel></rss>"
    with pytest.raises(XmlListError, match="entities"):
        parse_feed(xml.encode(), URL)


@pytest.mark.parametrize(
    ("plain", "cut", "reason"),
    [(bytes(60 << 20), None, "more than"), (b"<rss/>", -5, "ends too early")],
    ids=["too large", "cut off"],
)
def test_a_bad_gzip_feed_is_refused(plain: bytes, cut: int | None, reason: str) -> None:
    with pytest.raises(XmlListError, match=reason):
        parse_feed(gzip.compress(plain)[:cut], URL)


@pytest.mark.full_suite
@pytest.mark.timeout(60)
def test_a_huge_feed_is_read() -> None:
    many = (item(f"<title>{n}</title><link>/{n}</link>") for n in range(100_000))
    assert len(entries(rss(*many))) == 100_000


@pytest.mark.timeout(20)
@pytest.mark.parametrize("where", ["<rss><channel>", "<rss><channel><item><title>"])
def test_deep_nesting_costs_neither_time_nor_memory(where: str) -> None:
    depth = 200_000
    closing = "".join(f"</{tag}" for tag in reversed(where.split("<")[1:]))
    xml = where + '<a xml:base="a/a/">' * depth + "</a>" * depth + closing
    assert len(entries(xml)) == where.count("item")


@given(st.text(st.sampled_from('<>/="& rsitemlnkchadf:x\n'), max_size=200))
def test_any_text_is_a_feed_or_none_or_refused(text: str) -> None:
    for content in (text, rss(item(text)), atom(text)):
        try:
            feed = parse_feed(content.encode(), URL)
        except XmlListError:
            continue
        assert feed is None or all(entry.url != "" for entry in feed.entries)


def listed(server: ScriptedServer, fetcher: Fetcher, body: str) -> list[Listed]:
    location = server.page("/feed", body, "application/rss+xml")
    return list(FeedListing(location, fetcher).list())


def test_a_feed_lists_its_pages_once(server: ScriptedServer, fetcher: Fetcher) -> None:
    body = rss(
        item("<guid>g1</guid><link>/1</link><title>One</title>"),
        item("<guid>g1</guid><link>/1?again</link>"),
        item("<link>/2</link>"),
        item("<link>/2#again</link>"),
    )
    assert listed(server, fetcher, body) == [
        Listed("g1", f"{server.url}/1", "One"),
        Listed(f"{server.url}/2", f"{server.url}/2"),
    ]


def test_links_are_read_against_where_the_feed_was_found(
    server: ScriptedServer, fetcher: Fetcher
) -> None:
    location = server.reply("/feed", Reply(301, headers={"Location": "/en/feed.xml"}))
    server.page("/en/feed.xml", rss(item("<link>1</link>")))
    (found,) = FeedListing(location, fetcher).list()
    assert found.url == f"{server.url}/en/1"


def test_an_entry_without_a_link_is_left_out_with_a_warning(
    server: ScriptedServer, fetcher: Fetcher, caplog: pytest.LogCaptureFixture
) -> None:
    body = rss(item("<title>no link</title>"), item("<link>mailto:a@a.test</link>"))
    with caplog.at_level(logging.WARNING, "penstock.crawl.xml_lists"):
        found = listed(
            server, fetcher, body.replace("</channel>", item("<link>/1</link>") + "</channel>")
        )
    assert [one.url for one in found] == [f"{server.url}/1"]
    assert caplog.messages == [f"2 of 3 entries of {server.url}/feed have no http(s) link"]


def test_a_feed_without_any_link_fails(server: ScriptedServer, fetcher: Fetcher) -> None:
    with pytest.raises(ListingFailed, match="none of its entries"):
        listed(server, fetcher, rss(item("<title>a</title>"), item("<guid>b</guid>")))


def test_an_empty_feed_is_an_empty_listing(server: ScriptedServer, fetcher: Fetcher) -> None:
    assert listed(server, fetcher, rss()) == []


@pytest.mark.parametrize("body", ["", "<html>soft 404</html>", '{"jobs": []}', "<rss><channel>"])
def test_what_is_no_feed_fails(server: ScriptedServer, fetcher: Fetcher, body: str) -> None:
    with pytest.raises(ListingFailed, match="could not list"):
        listed(server, fetcher, body)


def test_a_feed_that_does_not_answer_fails(server: ScriptedServer, fetcher: Fetcher) -> None:
    listing = FeedListing(f"{server.url}/nothing", fetcher)
    assert (listing.kind, listing.location) == ("feed", f"{server.url}/nothing")
    with pytest.raises(ListingFailed, match="HTTP 404"):
        list(listing.list())
