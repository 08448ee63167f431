"""How a flow comes to its parts."""

from collections.abc import Sequence

from blocks.configuration import settings_with
from penstock.app import App, open_app
from penstock.local.joining import join_installation
from penstock.queue.configuration import read_configuration
from penstock.runs.lifecycle import read_run
from penstock.store.retry import retry_while_unavailable
from tasks.model_slots import PrefectModelSlots


@retry_while_unavailable
def open_flow_app(blocks: Sequence[str] | None, run_id: int | None = None) -> App:
    """Parts for a flow run; a database that is just being restarted is waited for. A recorded run
    goes on with the blocks that it was begun with, unless others are named."""
    # In a program that has named a Prefect server, that is all it has named.
    join_installation(prefect=False)
    app = _open(blocks or ())
    if blocks or run_id is None:
        return app
    with app.database.read() as tx:
        before = read_configuration(tx, read_run(tx, run_id).configuration)
    if before is None or not before.blocks:
        return app
    app.close()
    return _open(before.blocks)


def _open(blocks: Sequence[str]) -> App:
    app = open_app(settings_with(blocks), blocks=blocks)
    app.model_slots = PrefectModelSlots()
    return app
