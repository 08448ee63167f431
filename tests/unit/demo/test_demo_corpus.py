"""The sample corpus holds what the demo promises to show, and its site behaves like a real one."""

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pypdfium2  # type: ignore[import-untyped]
import pytest
from selectolax.lexbor import LexborHTMLParser

import entrypoints.demo
from entrypoints.demo.build_corpus import (
    BROKEN,
    DUPLICATE,
    EMPTY,
    LATIN_1,
    RESUMES_FOLDER,
    build_files,
    write_corpus,
)
from entrypoints.demo.site import DemoSite
from entrypoints.demo.static_files import find_file
from penstock.crawl.simhash import distance, simhash, visible_text
from penstock.errors import UsageError

SITE_FOLDER = Path(entrypoints.demo.__file__).parent / "corpus" / "site"
JOBS_FOLDER = SITE_FOLDER / "jobs"
TWINS = ("senior-python-engineer.html", "senior-python-engineer-second-opening.html")
SHORT = "weir-keeper.html"


def read_tree(path: Path) -> LexborHTMLParser:
    return LexborHTMLParser(path.read_text(encoding="utf-8"))


def read_visible_text(path: Path) -> str:
    return visible_text(path.read_bytes())


def list_job_pages() -> list[Path]:
    return sorted(path for path in JOBS_FOLDER.glob("*.html") if path.name != "index.html")


def read_json_ld(path: Path) -> list[object]:
    return [json.loads(node.text()) for node in read_tree(path).css("script[type*=ld]")]


def find_posting(data: object) -> dict[str, object]:
    if isinstance(data, list):
        return next(filter(None, map(find_posting, data)), {})
    assert isinstance(data, dict)
    return data if data.get("@type") == "JobPosting" else find_posting(data.get("@graph", []))


@pytest.fixture
def port_file(tmp_path: Path) -> Path:
    return tmp_path / "demo" / "port"


@pytest.fixture
def site(port_file: Path) -> Iterator[DemoSite]:
    with DemoSite(SITE_FOLDER, port_file) as site:
        yield site


@pytest.fixture
def client(site: DemoSite) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=site.url, trust_env=False) as client:
        yield client


def test_the_resumes_are_of_three_kinds() -> None:
    suffixes = [path.suffix for path in RESUMES_FOLDER.iterdir()]
    assert {suffix: suffixes.count(suffix) for suffix in suffixes} == {
        ".pdf": 5,
        ".docx": 3,
        ".txt": 4,
    }


def test_building_again_gives_the_committed_bytes(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    for built in tmp_path.iterdir():
        assert built.read_bytes() == (RESUMES_FOLDER / built.name).read_bytes(), built.name


def test_building_twice_gives_the_same_bytes() -> None:
    assert build_files() == build_files()


def test_one_resume_is_there_twice() -> None:
    original, copy = (RESUMES_FOLDER / name for name in DUPLICATE)
    assert original.read_bytes() == copy.read_bytes()


def test_no_other_two_files_are_equal() -> None:
    contents = [p.read_bytes() for p in RESUMES_FOLDER.iterdir() if p.name != DUPLICATE[1]]
    assert len(set(contents)) == len(contents)


def test_one_file_is_empty() -> None:
    assert (RESUMES_FOLDER / EMPTY).stat().st_size == 0


def test_the_broken_pdf_looks_like_one_but_does_not_open() -> None:
    assert (RESUMES_FOLDER / BROKEN).read_bytes().startswith(b"%PDF-")
    with pytest.raises(pypdfium2.PdfiumError):
        pypdfium2.PdfDocument(RESUMES_FOLDER / BROKEN)


@pytest.mark.parametrize(
    ("name", "person"),
    [
        ("imogen-haldane.pdf", "Imogen Haldane"),
        ("desmond-achterberg.pdf", "Desmond Achterberg"),
        ("tova-ekelund.pdf", "Tova Ekelund"),
    ],
)
def test_a_sound_pdf_opens_with_the_name_of_its_person(name: str, person: str) -> None:
    with pypdfium2.PdfDocument(RESUMES_FOLDER / name) as pdf:
        assert pdf[0].get_textpage().get_text_range().startswith(person)


def test_one_text_is_latin_1_and_not_utf_8() -> None:
    content = (RESUMES_FOLDER / LATIN_1).read_bytes()
    assert "IBÁÑEZ MÜLLER" in content.decode("latin-1")
    with pytest.raises(UnicodeDecodeError):
        content.decode("utf-8")


def test_two_job_pages_carry_no_json_ld_and_the_others_a_whole_posting() -> None:
    postings = {path.name: read_json_ld(path) for path in list_job_pages()}
    assert len(postings) == 8
    assert {name for name, data in postings.items() if not data} == {
        SHORT,
        "field-service-technician.html",
    }
    wanted = {"title", "hiringOrganization", "jobLocation", "employmentType", "baseSalary"}
    for data in filter(None, postings.values()):
        posting = find_posting(data)
        assert wanted <= posting.keys()
        assert str(posting["description"]).startswith("<p>")


def test_the_short_page_has_too_little_text_to_extract() -> None:
    assert 0 < len(read_visible_text(JOBS_FOLDER / SHORT)) < 100
    assert all(
        len(read_visible_text(path)) > 500 for path in list_job_pages() if path.name != SHORT
    )


def test_the_near_duplicate_is_not_equal_but_within_three_bits() -> None:
    first, second = (read_visible_text(JOBS_FOLDER / name) for name in TWINS)
    assert first != second
    assert distance(simhash(first), simhash(second)) <= 3


def test_every_link_of_the_site_leads_to_a_file() -> None:
    for page in SITE_FOLDER.rglob("*.html"):
        for node in read_tree(page).css("[href]"):
            target = node.attributes["href"] or ""
            assert find_file(SITE_FOLDER.resolve(), target), f"{page.name} links to {target}"


@pytest.mark.parametrize(
    ("path", "content_type"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/jobs/", "text/html; charset=utf-8"),
        ("/jobs/technical-writer.html?from=mail", "text/html; charset=utf-8"),
        ("/style.css", "text/css; charset=utf-8"),
        ("/robots.txt", "text/plain; charset=utf-8"),
        ("/sitemap.xml", "application/xml"),
    ],
)
def test_the_site_serves_its_files(client: httpx.Client, path: str, content_type: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == content_type
    assert client.head(path).headers["ETag"] == answer.headers["ETag"]


def test_the_sitemap_lists_pages_that_exist_by_absolute_url(
    site: DemoSite, client: httpx.Client
) -> None:
    urls = re.findall(r"<loc>(.*?)</loc>", client.get("/sitemap.xml").text)
    jobs = {f"{site.url}/jobs/{path.name}" for path in list_job_pages()}
    assert set(urls) == jobs | {f"{site.url}/life.html"}
    assert all(client.get(url).status_code == 200 for url in urls)
    assert f"Sitemap: {site.url}/sitemap.xml" in client.get("/robots.txt").text


@pytest.mark.parametrize("path", ["/", "/sitemap.xml", "/jobs/hydraulic-modeller.html"])
def test_a_page_already_known_is_not_sent_again(client: httpx.Client, path: str) -> None:
    fresh = client.get(path)
    etag, modified = fresh.headers["ETag"], fresh.headers["Last-Modified"]
    for condition in (
        {"If-None-Match": etag},
        {"If-None-Match": f'"other", W/{etag}'},
        {"If-Modified-Since": modified},
    ):
        answer = client.get(path, headers=condition)
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["ETag"] == etag


@pytest.mark.parametrize(
    "condition",
    [
        {"If-None-Match": '"other"'},
        {"If-None-Match": '"other"', "If-Modified-Since": "Fri, 01 Jan 2100 00:00:00 GMT"},
        {"If-Modified-Since": "Sat, 01 Jan 2000 00:00:00 GMT"},
        {"If-Modified-Since": "the other day"},
    ],
)
def test_a_page_not_known_is_sent(client: httpx.Client, condition: dict[str, str]) -> None:
    assert client.get("/", headers=condition).status_code == 200


@pytest.mark.parametrize(
    "target",
    ["/nothing.html", "/../resumes/empty.txt", "/%2e%2e/resumes/empty.txt", "//etc/passwd", "/%00"],
)
def test_nothing_outside_the_folder_is_served(site: DemoSite, target: str) -> None:
    host, port = site.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(f"GET {target} HTTP/1.0\r\n\r\n".encode("ascii"))
        assert connection.makefile("rb").readline().split()[1] == b"404"


def test_a_link_that_leads_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    outside, folder = tmp_path / "secret.txt", tmp_path / "site"
    outside.write_text("secret", encoding="utf-8")
    folder.mkdir()
    (folder / "index.html").symlink_to(outside)
    assert find_file(folder, "/") is None


def test_the_site_says_nothing_on_the_screen(
    client: httpx.Client, capfd: pytest.CaptureFixture[str]
) -> None:
    client.get("/")
    client.get("/nothing.html")
    assert capfd.readouterr() == ("", "")


@pytest.mark.full_suite
def test_the_port_is_remembered_from_one_demo_to_the_next(port_file: Path) -> None:
    urls = []
    for _ in range(2):
        with DemoSite(SITE_FOLDER, port_file) as site:
            assert httpx.get(site.url, trust_env=False).status_code == 200
            urls.append(site.url)
    assert urls[0] == urls[1]
    assert 20_000 <= int(port_file.read_text(encoding="ascii")) < 30_000


@pytest.mark.full_suite
def test_a_taken_port_is_replaced_and_the_new_one_remembered(port_file: Path) -> None:
    with DemoSite(SITE_FOLDER, port_file) as first, DemoSite(SITE_FOLDER, port_file) as second:
        assert first.url != second.url
        assert second.url.endswith(f":{port_file.read_text(encoding='ascii').strip()}")


@pytest.mark.full_suite
@pytest.mark.parametrize("nonsense", ["", "eighty", "80", "99999"])
def test_an_unusable_port_file_is_written_anew(port_file: Path, nonsense: str) -> None:
    port_file.parent.mkdir()
    port_file.write_text(nonsense, encoding="ascii")
    with DemoSite(SITE_FOLDER, port_file) as site:
        assert site.url == f"http://127.0.0.1:{int(port_file.read_text(encoding='ascii'))}"


@pytest.mark.full_suite
def test_a_closed_site_gives_no_address_and_frees_its_port(port_file: Path) -> None:
    with DemoSite(SITE_FOLDER, port_file) as site:
        url = site.url
    with pytest.raises(UsageError, match="no address yet"):
        _ = site.url
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False)
