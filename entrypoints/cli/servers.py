"""`penstock down`: stops what was started in the background."""

from entrypoints.cli.local_prefect import prefect_server
from entrypoints.cli.output import Json, console, print_json
from penstock.settings import load_settings


def down(json: Json = False) -> None:
    """Stop the local Prefect server of this home. It is started again when it is needed."""
    settings = load_settings()
    stopped = prefect_server(settings).stop()
    if json:
        print_json({"stopped": stopped})
        return
    console.print("the local Prefect server is stopped" if stopped else "nothing was running")
