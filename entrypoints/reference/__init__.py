"""The reference pages of `docs/reference/`, written from the code that they describe."""

from pathlib import Path

from entrypoints.reference.commands_page import write_commands_page
from entrypoints.reference.settings_page import write_settings_page

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


def write_pages() -> dict[Path, str]:
    """Each page's file, and what should stand in it."""
    return {
        FOLDER / "settings.md": write_settings_page(),
        FOLDER / "cli.md": write_commands_page(),
    }
