"""Flow `maintain`: forgets what is old, deletes raw bytes that nobody needs, gives back room."""

from typing import Any

from prefect import flow, get_run_logger

from flows.opening import open_flow_app
from tasks.maintenance import publish_figures


@flow(name="maintain", flow_run_name="maintain", persist_result=False)
def maintain(dry_run: bool = False, blocks: list[str] | None = None) -> dict[str, Any]:
    """All of maintenance, once; how much there was to do. Fails in the end if a part of it did.

    Args:
        dry_run: Only say what would be deleted.
        blocks: Saved configuration blocks that win over the environment, as `type/name`.
    """
    with open_flow_app(blocks) as app:
        done = app.maintain(dry_run=dry_run)
    log = get_run_logger()
    for part in done.parts:
        (log.error if part.error else log.info)("%s", part)
    publish_figures(done)
    done.raise_failures()
    return done.as_json()
