"""Makes the block types known to a Prefect server."""

from blocks import ALL_BLOCKS


def register_blocks() -> list[str]:
    """Make every block type known to the server; their slugs."""
    for block in ALL_BLOCKS:
        block.register_type_and_schema()
    return [block.get_block_type_slug() for block in ALL_BLOCKS]
