"""Tags on a flow run, by which people find it in the UI."""

from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

from tasks.best_effort import best_effort


def tag_flow_run(*tags: str) -> None:
    """Add tags to the running flow run itself.

    Not with `prefect.tags`: task runs would inherit them, and Prefect asks its server for a
    concurrency slot for each tag of each task run, which often costs more than the task.
    """
    flow_run_id = flow_run.get_id()
    if flow_run_id is None:
        return
    known = flow_run.get_tags() or []
    with best_effort(f"the tags {', '.join(tags)}"), get_client(sync_client=True) as client:
        client.update_flow_run(UUID(flow_run_id), tags={*known, *tags})
