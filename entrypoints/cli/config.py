"""`penstock config`: the settings in effect."""

from typing import Any

from entrypoints.cli.output import Json, errors, print_json, print_table
from penstock.settings import effective_values, load_settings, masked, retired_model_warnings


def config(json: Json = False) -> None:
    """Print the settings in effect, with secrets masked."""
    settings = load_settings()
    if json:
        print_json(masked(settings))
        return
    rows: list[tuple[str, Any, str]] = effective_values(settings)
    print_table(("setting", "value", "what it does"), rows)
    for warning in retired_model_warnings(settings):
        errors.print(f"[yellow]warning:[/] {warning}", highlight=False)
