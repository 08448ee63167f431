"""Sources that are kept by name."""

from pathlib import Path

import pytest

from penstock.errors import NotFound, UsageError
from penstock.runs.lifecycle import abort_run, open_run
from penstock.runs.vocabulary import SourceSpec
from penstock.sources.catalogue import (
    Source,
    find_source,
    list_sources,
    put_source,
    read_source,
    remove_source,
)
from penstock.sources.definition import SourceSettings
from penstock.sources.file import read_sources, write_sources
from penstock.store.database import Database
from penstock.work.queue import WorkQueue
from penstock.work.retry import default_rules
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
