"""Sources that are kept by name."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.app import App, open_app
from penstock.errors import ListingFailed, NotFound, UsageError
from penstock.queue.queue import WorkQueue
from penstock.queue.retry import default_rules
from penstock.runs.execute import open_source_run
from penstock.runs.lifecycle import abort_run, open_run
from penstock.runs.run import SourceSpec
from penstock.settings import load_settings
from penstock.sources.catalogue import (
    Source,
    SourceSettings,
    find_source,
    list_sources,
    put_source,
    read_source,
    read_sources,
    remove_source,
    write_sources,
)
from penstock.store.database import Database
from tests.factories import TENANT, add_node

URL = "https://acme.test/jobs"


def put(
    database: Database, name: str = "acme", kind: str = "site", url: str = URL, **settings: object
) -> Source:
    with database.write() as tx:
        chosen = SourceSettings.model_validate(settings)
        return put_source(tx, TENANT, name, kind, url, chosen)


def test_a_source_comes_back_with_its_settings(database: Database) -> None:
    put(database, exclude_titles=["intern"], profile="job_posting", force=True)
    with database.read() as tx:
        source = read_source(tx, TENANT, "acme")
    assert (source.kind, source.location) == ("site", URL)
    assert source.settings.exclude_titles == ("intern",)
    assert (source.settings.profile, source.settings.force) == ("job_posting", True)


def test_adding_it_again_changes_it(database: Database) -> None:
    first = put(database, force=True)
    second = put(database, url="https://acme.test/careers")
    assert (second.id, second.location) == (first.id, "https://acme.test/careers")
    assert not second.settings.force


def test_tenants_have_sources_of_their_own(database: Database) -> None:
    put(database)
    with database.read() as tx:
        assert list_sources(tx, "other") == []
        assert find_source(tx, "other", "acme") is None


def test_a_source_is_found_by_its_location_unless_two_are_there(database: Database) -> None:
    put(database)
    with database.read() as tx:
        found = find_source(tx, TENANT, URL)
        assert found is not None
        assert found.name == "acme"
    put(database, name="acme, engineers only", include_titles=["engineer"])
    with database.read() as tx:
        assert find_source(tx, TENANT, URL) is None


def test_what_was_ingested_by_its_address_keeps_its_documents_under_a_name(
    database: Database,
) -> None:
    run = open_run(database, SourceSpec(TENANT, URL, "site", URL), profile=None, force=False)
    assert put(database).id == run.source_id
    with database.read() as tx:
        assert [source.name for source in list_sources(tx, TENANT)] == ["acme"]


def test_a_source_with_documents_cannot_become_another_kind(database: Database) -> None:
    source = put(database)
    with database.write() as tx:
        add_node(tx, source_id=source.id)
    with pytest.raises(UsageError, match="has documents as a site and cannot become a feed"):
        put(database, kind="feed")


def test_a_removed_source_is_gone_and_can_be_added_again(database: Database) -> None:
    source = put(database)
    with database.write() as tx:
        remove_source(tx, TENANT, "acme")
    with database.read() as tx:
        assert list_sources(tx, TENANT) == []
    with pytest.raises(NotFound, match="there is no source 'acme'"), database.read() as tx:
        read_source(tx, TENANT, "acme")
    assert put(database).id == source.id


def test_a_source_with_an_active_run_is_not_removed(database: Database) -> None:
    put(database)
    run = open_run(database, SourceSpec(TENANT, "acme", "site", URL), profile=None, force=False)
    with (
        pytest.raises(UsageError, match=rf"run {run.id} of acme is active"),
        database.write() as tx,
    ):
        remove_source(tx, TENANT, "acme")
    abort_run(database, WorkQueue(default_rules()), run.id, reason="enough")
    with database.write() as tx:
        remove_source(tx, TENANT, "acme")


def test_a_file_of_sources_goes_there_and_back(database: Database, tmp_path: Path) -> None:
    put(database, include_titles=["engineer*"], link_pattern=r"/jobs/\d+")
    put(database, name="papers", kind="folder", url="/srv/papers", profile="document")
    with database.read() as tx:
        known = list_sources(tx, TENANT)
    path = tmp_path / "sources.yaml"
    path.write_text(write_sources(known))
    again = read_sources(path)
    assert [one.name for one in again] == ["acme", "papers"]
    assert [one.settings for one in again] == [one.settings for one in known]
    assert again[0].tenant == TENANT


def test_a_file_of_sources_holds_nothing_that_a_terminal_obeys(
    database: Database, tmp_path: Path
) -> None:
    obeyed = "\u202e\u2066\x9b\x85\x1b"
    put(database, name="müller", kind="s3", url="s3://bb/ä/")
    with database.read() as tx:
        assert "müller" in write_sources(list_sources(tx, TENANT))
    put(database, name="papers", kind="s3", url=f"s3://bb/x{obeyed}y/")
    with database.read() as tx:
        known = list_sources(tx, TENANT)
    path = tmp_path / "sources.yaml"
    path.write_text(write_sources(known))

    assert not set(obeyed) & set(path.read_text())
    assert [one.location for one in read_sources(path)] == [one.location for one in known]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("sources: []", "has no list under `sources:`"),
        ("a: [", "is not YAML"),
        ("sources:\n  - name: acme", "source 1: location: Field required"),
        ("sources:\n  - {name: a, location: b, colour: red}", "source 1: colour: Extra inputs"),
        ("sources:\n  - {name: '', location: b}", "source 1: name: String should have at least"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_place(
    tmp_path: Path, content: str, complaint: str
) -> None:
    path = tmp_path / "sources.yaml"
    path.write_text(content)
    with pytest.raises(UsageError, match=complaint):
        read_sources(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="could not read"):
        read_sources(tmp_path / "none.yaml")


class TestOverlappingTheRawStore:
    """Whoever asks: it holds the bytes of every tenant."""

    @pytest.fixture
    def app(self, database: Database, tmp_path: Path) -> Iterator[App]:
        (tmp_path / "home" / "raw" / "victim").mkdir(parents=True)
        (tmp_path / "home" / "raw" / "victim" / "urls.txt").write_text("https://a.test/\n")
        (tmp_path / "link").symlink_to(tmp_path / "home" / "raw")
        settings = load_settings(
            home=tmp_path / "home",
            dsn=database.url,
            raw_store="s3://kept/store",
            s3_endpoint_url="http://127.0.0.1:1",
            s3_region="us-east-1",
            s3_access_key_id="key",
            s3_secret_access_key="secret",
        )
        with open_app(settings) as app:
            yield app

    @pytest.fixture(
        params=[
            ("s3", "s3://kept/store/raw/victim/"),
            ("s3", "s3://kept/st"),
            ("s3", "s3://kept"),
            ("folder", "home/raw/victim"),
            ("folder", "home"),
            ("folder", "."),
            ("folder", "link/victim"),
            ("url_list", "home/raw/victim/urls.txt"),
        ]
    )
    def place(self, request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
        kind, location = request.param
        return kind, location if kind == "s3" else str(tmp_path / location)

    def test_it_is_no_source_of_a_run(self, app: App, place: tuple[str, str]) -> None:
        with pytest.raises(UsageError, match="raw store"):
            open_source_run(app.sources, place[1], TENANT)
        with app.database.read() as tx:
            assert list_sources(tx, TENANT) == []

    def test_it_is_not_added_or_tried(self, app: App, place: tuple[str, str]) -> None:
        with pytest.raises(UsageError, match="raw store"):
            app.sources.listing(None, place[1])

    def test_a_source_that_was_added_before_is_not_listed(
        self, app: App, place: tuple[str, str]
    ) -> None:
        put(app.database, "old", *place)
        run = open_source_run(app.sources, "old", TENANT)

        with pytest.raises(ListingFailed, match="raw store"):
            app.sources.listing(run.source_kind, run.location)

    def test_what_lies_beside_it_is_listed(self, app: App, tmp_path: Path) -> None:
        (tmp_path / "home" / "documents").mkdir()

        assert app.sources.listing(None, str(tmp_path / "home" / "documents")).kind == "folder"
        assert app.sources.listing(None, "s3://kept/documents/").kind == "s3"
