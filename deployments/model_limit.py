"""The limit of model calls, which all flow runs share."""

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate
from prefect.exceptions import ObjectNotFound

from tasks.model_slots import LIMIT

# Four flow runs that ask models as EXTRACTION_CONCURRENCY allows by default; others wait for them.
CALLS = 64


def install_model_limit(name: str = LIMIT) -> str:
    """Create the limit if it is missing; one that was changed in the UI stays as it is."""
    with get_client(sync_client=True) as client:
        try:
            limit = client.read_global_concurrency_limit_by_name(name)
        except ObjectNotFound:
            wanted = GlobalConcurrencyLimitCreate(name=name, limit=CALLS)
            client.create_global_concurrency_limit(wanted)
            return f"created global concurrency limit {name!r}: {CALLS} model calls at once"
        return f"unchanged global concurrency limit {name!r}: {limit.limit}"
