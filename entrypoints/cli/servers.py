"""`penstock down`: stops what runs in the background, or in another terminal."""

from entrypoints.cli.joining import installation_home
from entrypoints.cli.output import Json, console, errors, print_json
from penstock.settings import load_settings


def down(json: Json = False) -> None:
    """Stop `penstock up`, or the local Prefect server of this home. The data stay."""
    home = installation_home(load_settings())
    was_up = home.read() is not None
    with errors.status("stopping …"):
        stopped = home.stop()
    if json:
        print_json({"stopped": stopped})
    elif not stopped:
        console.print("nothing was running")
    else:
        console.print("penstock is down" if was_up else "the local Prefect server is stopped")
