"""The flow `maintain` on a real Prefect server."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State

from flows.maintain import maintain
from penstock.app import open_app
from penstock.errors import Unmaintained
from penstock.store.schema import events

pytestmark = pytest.mark.usefixtures("prefect", "home")


@pytest.fixture
def old_event(home: Path) -> None:
    del home
    with open_app() as app, app.database.write() as tx:
        row = {"tenant_id": "default", "stage": "ING", "level": "INFO", "message": "long ago"}
        long_ago = tx.now - timedelta(days=31)
        tx.execute(sa.insert(events).values(row | {"at": long_ago}))


def count_events() -> int:
    with open_app() as app, app.database.read() as tx:
        return int(tx.execute(sa.select(sa.func.count()).select_from(events)).scalar_one())


def run(**parameters: Any) -> tuple[State[Any], str]:
    """How it ended, and its artifact."""
    state: State[Any] = maintain(**parameters, return_state=True)
    number = state.state_details.flow_run_id
    with get_client(sync_client=True) as client:
        wanted = {"flow_runs": {"id": {"any_": [str(number)]}}}
        found = client.request("POST", "/artifacts/filter", json=wanted).json()
    [artifact] = [one for one in found if one["key"] == "maintenance"]
    return state, str(artifact["data"])


@pytest.mark.usefixtures("old_event")
def test_it_says_what_it_would_do_and_then_does_it() -> None:
    would, shown = run(dry_run=True)
    assert would.is_completed()
    assert "would delete" in shown
    assert count_events() == 1

    done, shown = run()
    assert done.is_completed()
    assert "| events | 1 |" in shown
    assert count_events() == 0


@pytest.mark.usefixtures("old_event")
def test_a_part_that_fails_fails_the_flow_when_the_others_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_RAW_STORE", "s3://nowhere")
    monkeypatch.setenv("PENSTOCK_S3_ENDPOINT_URL", "no address")
    state, shown = run()
    assert state.is_failed()
    with pytest.raises(Unmaintained, match=r"raw objects: .*PENSTOCK_S3_ENDPOINT_URL"):
        state.result()
    assert "**failed:**" in shown
    assert "| events | 1 |" in shown
    assert count_events() == 0
