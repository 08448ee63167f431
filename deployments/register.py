"""Makes Penstock known to a Prefect server: `python -m deployments.register`."""

from blocks import ALL_BLOCKS
from deployments.automations import install_automations


def register_blocks() -> list[str]:
    """Make every block type known to the server; their slugs."""
    for block in ALL_BLOCKS:
        block.register_type_and_schema()
    return [block.get_block_type_slug() for block in ALL_BLOCKS]


if __name__ == "__main__":
    for slug in register_blocks():
        print(f"registered {slug}")  # noqa: T201 - this is a command
    for done in install_automations():
        print(done)  # noqa: T201
