"""How a flow comes to its parts."""

from blocks.configuration import settings_with
from penstock.app import App, open_app
from penstock.store.retry import retry_while_unavailable


@retry_while_unavailable
def open_flow_app(blocks: list[str] | None) -> App:
    """Parts for a flow run; a database that is just being restarted is waited for."""
    return open_app(settings_with(blocks or []))
