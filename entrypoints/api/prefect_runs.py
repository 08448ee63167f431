"""The one place where the API touches Prefect: it starts a deployed flow for a recorded run."""

import logging
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import UUID

from penstock.errors import ServiceError
from penstock.local.prefect_server import REFUSED_STATUSES, describe_refusal
from penstock.runs.run import Run
from penstock.settings import mask_url

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

log = logging.getLogger(__name__)
DEPLOYMENT = "ingest/ingest"


def start_ingest(run: Run) -> str:
    """Have a worker do this run; the id of its flow run."""
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound, PrefectException
    from prefect.settings import get_current_settings

    if get_current_settings().api.url is None:
        # Prefect would start a server of its own, which knows of nothing.
        raise ServiceError(
            "no Prefect server is named: set PREFECT_API_URL to one that has the deployments, "
            "or use `penstock ingest`"
        )
    try:
        with get_client(sync_client=True) as client:
            return _start(client, run)
    except ObjectNotFound:
        raise ServiceError(
            f"Prefect has no deployment {DEPLOYMENT}: run `python -m deployments.install`, and "
            "start a worker with `prefect worker start --pool penstock`"
        ) from None
    except (PrefectException, httpx.HTTPError, OSError) as error:
        log.warning("Prefect cannot be asked to start a run: %s", mask_url(str(error)))
        if _status(error) in REFUSED_STATUSES:
            raise ServiceError(describe_refusal()) from error
        raise ServiceError(
            f"Prefect cannot be asked to start a run ({_kind(error)}): set PREFECT_API_URL to a "
            "server that has the deployments, or use `penstock ingest`"
        ) from error


def flow_run_address(flow_run_id: str | None) -> str | None:
    """Where Prefect's own pages show a flow run; nothing, when no server is known."""
    if flow_run_id is None:
        return None
    from prefect.settings import get_current_settings

    settings = get_current_settings()
    pages = urlsplit(settings.ui_url or str(settings.api.url or "").removesuffix("/api"))
    if not pages.netloc:
        return None
    # Without a user and a password, which may stand in the address of the API.
    shown = pages._replace(netloc=pages.netloc.rpartition("@")[2], query="", fragment="")
    return f"{shown.geturl().rstrip('/')}/runs/flow-run/{flow_run_id}"


def _kind(error: Exception) -> str:
    """What went wrong, for tenants: the text of the error repeats the address of Prefect's API,
    in which there may be credentials."""
    status = _status(error)
    return type(error).__name__ if status is None else f"it answers with status {status}"


def _status(error: Exception) -> int | None:
    import httpx

    return error.response.status_code if isinstance(error, httpx.HTTPStatusError) else None


def _start(client: "SyncPrefectClient", run: Run) -> str:
    if run.flow_run_id is not None and _goes_on(client, run.flow_run_id):
        return run.flow_run_id
    start = partial(
        client.create_flow_run_from_deployment,
        client.read_deployment_by_name(DEPLOYMENT).id,
        parameters={"source": run.source_name, "tenant": run.tenant_id, "run_id": run.id},
        tags=[f"tenant:{run.tenant_id}", f"source:{run.source_name}"],
    )
    # Not by the number alone: other databases, on the same Prefect server, have the same ones.
    started = start(idempotency_key=f"penstock-run-{run.id}-{run.created_at.isoformat()}")
    if started.state is not None and started.state.is_final():
        # The one of this key has ended without ending its run: it takes another to go on.
        started = start()
    return str(started.id)


def _goes_on(client: "SyncPrefectClient", flow_run_id: str) -> bool:
    """Resume the flow run that a setting has suspended; False: it is no such one."""
    from prefect.exceptions import ObjectNotFound

    try:
        flow_run = client.read_flow_run(UUID(flow_run_id))
    except ObjectNotFound:
        return False
    if flow_run.state is None or not flow_run.state.is_paused():
        return False
    client.resume_flow_run(flow_run.id)
    return True
