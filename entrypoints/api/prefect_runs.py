"""The one place where the API touches Prefect: it starts a deployed flow for a recorded run."""

from penstock.errors import ServiceError
from penstock.runs.vocabulary import Run

DEPLOYMENT = "ingest/ingest"


def start_ingest(run: Run) -> str:
    """Have a worker do this run; the id of its flow run."""
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound, PrefectException

    parameters = {"source": run.location, "tenant": run.tenant_id, "run_id": run.id}
    tags = [f"tenant:{run.tenant_id}", f"source:{run.source_name}"]
    try:
        with get_client(sync_client=True) as client:
            deployment = client.read_deployment_by_name(DEPLOYMENT)
            started = client.create_flow_run_from_deployment(
                deployment.id,
                parameters=parameters,
                tags=tags,
                idempotency_key=f"penstock-run-{run.id}",
            )
    except ObjectNotFound:
        raise ServiceError(
            f"Prefect has no deployment {DEPLOYMENT}: run `prefect deploy --all`, and start a "
            "worker with `prefect worker start --pool penstock`"
        ) from None
    except (PrefectException, httpx.HTTPError, OSError) as error:
        raise ServiceError(
            f"Prefect cannot be asked to start a run ({type(error).__name__}: {error}): set "
            "PREFECT_API_URL to a server that has the deployments, or use `penstock ingest`"
        ) from error
    return str(started.id)
