"""`penstock serve`: the HTTP API and the pages."""

from typing import Annotated

import typer

from entrypoints.api.loopback import is_loopback
from entrypoints.cli.output import errors, log_to_screen
from penstock.app import open_app
from penstock.errors import UsageError
from penstock.settings import Settings, load_settings


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free one.")] = 8000,
) -> None:
    """Serve the HTTP API and the dashboard until stopped. Without tokens, on loopback only."""
    settings = load_settings()
    _refuse_open_host(settings, host)
    with open_app(settings):
        pass  # problems with the database are reported here
    import uvicorn

    from entrypoints.api.app import create_app
    from entrypoints.dashboard.app import add_dashboard

    log_to_screen()
    guarded = "with tokens" if settings.asks_for_tokens else "without tokens, on this machine only"
    errors.print(f"serving {guarded}; dashboard at /ui, API at /docs", highlight=False)
    app = create_app(settings)
    add_dashboard(app)
    uvicorn.run(app, host=host, port=port, log_level="info", access_log=False)


def _refuse_open_host(settings: Settings, host: str) -> None:
    if settings.asks_for_tokens or is_loopback(host):
        return
    raise UsageError(
        f"--host {host} can be reached from other machines, which needs tokens: set "
        "PENSTOCK_API_JWT_SECRET or PENSTOCK_API_JWT_PUBLIC_KEY, or listen on 127.0.0.1"
    )
