"""A bucket as a source and as the place of raw bytes, through the whole path."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.crawl.listing import Listed
from penstock.crawl.rawstore import S3RawStore
from penstock.crawl.s3 import S3Access, S3Listing
from penstock.errors import ConfigurationError
from penstock.runs.lifecycle import open_run
from penstock.runs.run import Run, SourceSpec
from penstock.store.database import Database
from tests.contract.ingestion import Workplace, counts, make_text
from tests.factories import TENANT
from tests.s3 import SECRET, script

ODD_NAMES = ["a//b.txt", "a b.txt", "ä.txt", "a%2Fb.txt", "/lead.txt", "nul\x00.txt"]


class BucketWorkplace(Workplace):
    """The same with the objects below `docs/` in place of a folder, and the real steps."""

    location = ""

    def record_run(self, profile: str | None, force: bool) -> Run:
        listing = S3Listing(self.location, self.app.s3)
        spec = SourceSpec(TENANT, listing.location, listing.kind, listing.location)
        return open_run(self.database, spec, profile=profile, force=force)

    def listed(self) -> list[Listed]:
        return list(S3Listing(self.location, self.app.s3).list())


@pytest.fixture
def place(
    database: Database,
    tmp_path: Path,
    s3_access: S3Access,
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[BucketWorkplace]:
    monkeypatch.setenv("PENSTOCK_RAW_STORE", f"s3://{bucket}/kept/here")
    monkeypatch.setenv("PENSTOCK_S3_ENDPOINT_URL", str(s3_access.endpoint_url))
    monkeypatch.setenv("PENSTOCK_S3_ACCESS_KEY_ID", str(s3_access.access_key_id))
    monkeypatch.setenv("PENSTOCK_S3_SECRET_ACCESS_KEY", SECRET)
    made = BucketWorkplace(database, tmp_path / "home")
    made.steps = made.app.steps  # type: ignore[assignment]  # the real ones, in child processes
    made.location = f"s3://{bucket}/docs/"
    yield made
    made.close()


def write(s3: Any, bucket: str, name: str, about: str = "mills") -> None:
    text = make_text(f"Paper {name!r}", about)
    s3.put_object(Bucket=bucket, Key=f"docs/{name}", Body=text.encode(), ContentType="text/plain")


def keys(s3: Any, bucket: str, prefix: str) -> list[str]:
    found = s3.list_objects_v2(Bucket=bucket, Prefix=prefix)
    return [entry["Key"] for entry in found.get("Contents", ())]


def test_a_key_that_may_lead_elsewhere_is_an_error_of_its_document(
    place: BucketWorkplace, s3: Any, bucket: str
) -> None:
    write(s3, bucket, "a.txt")
    write(s3, bucket, "../up.txt")

    assert counts(place.ingest()) == {"ready": 1, "error": 1}


def test_a_prefix_is_ingested_and_its_raw_bytes_are_kept_in_the_bucket(
    place: BucketWorkplace, s3: Any, bucket: str
) -> None:
    for name in ODD_NAMES:
        write(s3, bucket, name)

    assert counts(place.ingest()) == {"ready": len(ODD_NAMES)}

    kept = keys(s3, bucket, "kept/")
    assert len(kept) == len(ODD_NAMES)
    assert all(key.startswith("kept/here/raw/") and key.endswith(".txt") for key in kept)
    assert place.node("a//b.txt").url == f"s3://{bucket}/docs/a//b.txt"
    assert place.node("nul%00.txt").content_hash in str(kept)
    assert not (place.app.settings.home / "raw").exists()

    asked = script(place.app.s3, "PutObject")
    write(s3, bucket, "ä.txt", about="turbines")
    s3.delete_object(Bucket=bucket, Key="docs/a b.txt")
    report = place.ingest()

    assert counts(report) == {"ready": 1, "skipped": len(ODD_NAMES) - 2, "expired": 1}
    assert len(asked) == 1
    assert place.document(report.run.id, "a//b.txt").reason == "unchanged (not modified)"


def test_a_bucket_that_is_missing_stops_the_run_and_blames_no_document(
    place: BucketWorkplace, s3: Any, bucket: str
) -> None:
    write(s3, bucket, "a.txt")
    place.app.raw = S3RawStore(place.app.s3, "nowhere-at-all")

    with pytest.raises(ConfigurationError, match=r"nowhere-at-all.*PENSTOCK_RAW_STORE"):
        place.ingest()
