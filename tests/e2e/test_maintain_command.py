"""`penstock maintain` in a process of its own."""

from datetime import timedelta
from pathlib import Path

import sqlalchemy as sa

from penstock.app import open_app
from penstock.settings import load_settings
from penstock.store.schema import events
from tests.e2e.commands import CommandLine


def test_it_tells_what_it_would_delete_deletes_it_and_needs_no_prefect(tmp_path: Path) -> None:
    penstock = CommandLine(tmp_path / "home", settings={"PENSTOCK_KEEP_EVENTS_DAYS": "7"})
    with open_app(load_settings(home=penstock.home)) as app, app.database.write() as tx:
        row = {"tenant_id": "default", "stage": "ING", "level": "INFO", "message": "long ago"}
        times = [{"at": tx.now - timedelta(days=days)} for days in (6, 8)]
        tx.execute(sa.insert(events), [row | one for one in times])

    would = penstock.run("maintain", "--dry-run", "--json")
    assert would.code == 0, would.err
    assert would.json["dry_run"]
    figures = {one["what"]: one["count"] for p in would.json["parts"] for one in p["figures"]}
    assert figures["events"] == 1

    done = penstock.run("maintain")
    assert done.code == 0, done.err
    assert "events" in done.out
    again = penstock.run("maintain", "--json").json
    assert [figure["count"] for part in again["parts"] for figure in part["figures"]] == [0] * 10
    assert not (penstock.home / "prefect").exists()

    broken = CommandLine(
        penstock.home,
        settings={"PENSTOCK_RAW_STORE": "s3://nowhere", "PENSTOCK_S3_ENDPOINT_URL": "no address"},
    ).run("maintain", "--json")
    assert broken.code == 1
    assert "PENSTOCK_S3_ENDPOINT_URL" in broken.json["failures"][0]
