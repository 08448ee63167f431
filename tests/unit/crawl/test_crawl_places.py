"""Where no document may come from, and which places in S3 callers of the API may name."""

from pathlib import Path

import pytest

from penstock.app import open_app
from penstock.crawl.access import AllowedPrefixes, OffLimits
from penstock.crawl.fetch import Fetcher
from penstock.crawl.listing import Listed
from penstock.crawl.rawstore import raw_prefix
from penstock.errors import DocumentFault, ErrorClass
from penstock.settings import load_settings

STORE = OffLimits(raw_prefix=raw_prefix("s3://kept/store"))


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "s",
        "store",
        "store/",
        "store/raw/victim/",
        "store/else/",
        "//store/raw/",
        "/",
    ],
)
def test_a_prefix_above_or_in_the_raw_store_overlaps_it(prefix: str) -> None:
    assert STORE.overlap_prefix("kept", prefix)
    assert STORE.overlap_prefix("KEPT", prefix)
    assert not STORE.overlap_prefix("other", prefix)


# A server that takes keys for paths finds another bucket behind the last two.
DOTTED = [
    "docs/../store/",
    "./store//raw/",
    "docs/./",
    "..",
    ".",
    "../kept/store/",
    "a/../../kept/",
]


@pytest.mark.parametrize("key", DOTTED)
def test_keys_that_may_lead_out_of_their_bucket_are_refused_in_all_of_them(key: str) -> None:
    def ask() -> object:
        raise AssertionError("nobody is asked")

    for off_limits in (STORE, OffLimits()):
        for bucket in ("kept", "public"):
            assert off_limits.overlap_prefix(bucket, key)
            with pytest.raises(DocumentFault) as caught:
                Fetcher(s3=ask, off_limits=off_limits).fetch(Listed("a", f"s3://{bucket}/{key}"))
            assert caught.value.kind is ErrorClass.FORBIDDEN
    assert not AllowedPrefixes.parse(["s3://public/"]).allow("public", key, "acme")


@pytest.mark.parametrize("key", [".hidden", "a/.hidden/b", "a..b", "...", "a/b.", "..a/b"])
def test_dots_inside_names_are_allowed(key: str) -> None:
    assert not STORE.overlap_prefix("public", key)
    STORE.check_object(f"s3://public/{key}")
    assert AllowedPrefixes.parse(["s3://public/"]).allow("public", key, "acme")


@pytest.mark.parametrize("prefix", ["docs/", "store-2/", "storehouse", "raw/", "docs/store/"])
def test_a_prefix_beside_the_raw_store_does_not(prefix: str) -> None:
    assert not STORE.overlap_prefix("kept", prefix)


@pytest.mark.parametrize("location", ["s3://kept", "s3://kept/", "s3://kept//"])
def test_a_raw_store_without_a_prefix_leaves_room_for_others(location: str) -> None:
    store = OffLimits(raw_prefix=raw_prefix(location))

    assert store.overlap_prefix("kept", "")
    assert store.overlap_prefix("kept", "raw/victim/")
    assert not store.overlap_prefix("kept", "docs/")


@pytest.mark.parametrize("key", ["store/raw/v/a", "/store/raw/v/a", "//store//raw/v/a"])
def test_no_object_of_the_raw_store_is_fetched(key: str) -> None:
    def ask() -> object:
        raise AssertionError("nobody is asked")

    fetcher = Fetcher(s3=ask, off_limits=STORE)
    with pytest.raises(DocumentFault, match="raw store") as caught:
        fetcher.fetch(Listed("a", f"s3://kept/{key}"))
    assert caught.value.kind is ErrorClass.FORBIDDEN


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("raw/victim/cv.txt", "raw.txt", "penstock.db", "postgres/base/1"):
        path = tmp_path / "home" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("theirs")
    return tmp_path / "home"


@pytest.fixture
def off_limits(home: Path) -> OffLimits:
    return OffLimits(home / "raw", None, (home / "penstock.db", home / "postgres"))


def test_a_folder_above_or_in_the_raw_store_overlaps_it(home: Path, off_limits: OffLimits) -> None:
    (home.parent / "link").symlink_to(home / "raw" / "victim")

    for path in ("raw/victim/cv.txt", "raw/victim", "raw", "", "..", "raw/../../home", "../link"):
        assert off_limits.overlap_path(home / path), path
    for path in ("raw.txt", "../elsewhere", "rawer"):
        assert not off_limits.overlap_path(home / path), path


def test_a_raw_store_that_is_hidden_from_listings_may_lie_in_a_source(tmp_path: Path) -> None:
    hidden = OffLimits(tmp_path / ".penstock" / "raw")

    assert not hidden.overlap_path(tmp_path)
    assert hidden.overlap_path(tmp_path / ".penstock")


@pytest.mark.parametrize("name", ["raw/victim/cv.txt", "penstock.db", "postgres/base/1"])
def test_no_file_of_the_raw_store_or_the_database_is_read(
    home: Path, off_limits: OffLimits, name: str
) -> None:
    fetcher = Fetcher(off_limits=off_limits)
    (home.parent / "file").symlink_to(home / name)
    (home.parent / "folder").symlink_to((home / name).parent)

    for path in (home / name, home.parent / "file", home.parent / "folder" / Path(name).name):
        with pytest.raises(DocumentFault) as caught:
            fetcher.fetch(Listed("a", path.as_uri(), path=path))
        assert caught.value.kind is ErrorClass.FORBIDDEN


@pytest.mark.parametrize(
    "name",
    [
        "prefect.auth",
        "postgres.password",
        "valkey.password",
        "valkey.password.17.tmp",
        "up.json",
        "penstock.log",
        "penstock.db-wal",
        "logs/api.log",
        "prefect/prefect.db",
        "valkey/valkey.conf",
    ],
)
def test_no_file_of_the_installation_is_read(tmp_path: Path, name: str) -> None:
    home, drop = tmp_path / "home", tmp_path / "drop"
    drop.mkdir()
    (drop / "link.txt").symlink_to(home / name)
    (drop / "own.txt").write_text("the mill")
    for path in (home / name, home / "documents" / name):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("theirs")

    with open_app(load_settings(home=home, dsn="sqlite://")) as app:
        for path in (home / name, drop / "link.txt"):
            with pytest.raises(DocumentFault, match="passwords") as caught:
                app.fetcher.fetch(Listed("a", "", path=path))
            assert caught.value.kind is ErrorClass.FORBIDDEN
        # What people keep there themselves is theirs to read.
        for path in (drop / "own.txt", home / "documents" / name):
            app.fetcher.fetch(Listed("a", "", path=path))


def test_links_in_a_circle_are_a_fault_of_the_document(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")

    with pytest.raises(DocumentFault):
        Fetcher(off_limits=OffLimits(tmp_path / "raw")).fetch(Listed("a", "", path=tmp_path / "a"))


def test_callers_may_name_what_is_allowed_to_all_or_to_their_tenant() -> None:
    allowed = AllowedPrefixes.parse(["s3://shared/", "acme=s3://private/acme/"])

    assert allowed.allow("shared", "any/thing", "globex")
    assert allowed.allow("private", "acme/", "acme")
    assert allowed.allow("private", "acme/cv.pdf", "acme")
    assert not allowed.allow("private", "acme/cv.pdf", "globex")
    assert not allowed.allow("private", "acme", "acme"), "it finds acme-2/ too"
    assert not allowed.allow("private", "acme-2/", "acme")
    assert not allowed.allow("private", "acme/../globex/", "acme")
    assert not allowed.allow("shared-2", "any/thing", "acme")
    assert not AllowedPrefixes().allow("shared", "", "acme")
