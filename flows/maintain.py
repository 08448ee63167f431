"""Flow `maintain`: deletes old rows and unneeded raw bytes, and shrinks the database."""

from typing import Any

from prefect import flow, get_run_logger

from flows.opening import open_flow_app
from tasks.artifacts import publish_figures


@flow(name="maintain", flow_run_name="maintain")
def maintain(dry_run: bool = False, blocks: list[str] | None = None) -> dict[str, Any]:
    """Run all of maintenance once. Fails at the end if a part of it failed.

    Args:
        dry_run: Only say what would be deleted.
        blocks: Saved configuration blocks that win over the environment, as `type/name`.
    """
    with open_flow_app(blocks) as app:
        done = app.maintenance.run(dry_run=dry_run)
    log = get_run_logger()
    for part in done.parts:
        (log.error if part.error else log.info)("%s", part)
    publish_figures(done)
    done.raise_failures()
    return done.as_json()
