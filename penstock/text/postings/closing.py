"""What platforms add below every posting of a company: notices on pay, equal opportunities."""

from collections import Counter
from collections.abc import Sequence

from penstock.text.postings.blocks import Block
from penstock.text.postings.words import CLOSING, MONEY_RANGE


def drop_closing(blocks: Sequence[Block]) -> list[Block]:
    """The posting without what was added to its end, in elements of its own."""
    kept = list(blocks)
    sizes = Counter[int]()
    for block in blocks:
        sizes[block.group] += len(block.text)
    body = max(sizes, key=lambda group: sizes[group], default=0)
    while kept and kept[-1].group != body:
        added = _last_group(kept)
        if not _is_closing(added):
            break
        del kept[-len(added) :]
    return kept or list(blocks)


def find_pay_range(blocks: Sequence[Block]) -> str:
    """The sums of the first line that states a range of pay."""
    found = (MONEY_RANGE.search(block.text) for block in blocks if CLOSING.search(block.text))
    return next((match[0].strip() for match in found if match), "")


def _last_group(blocks: Sequence[Block]) -> list[Block]:
    group = blocks[-1].group
    start = len(blocks)
    while start and blocks[start - 1].group == group:
        start -= 1
    return list(blocks[start:])


def _is_closing(blocks: Sequence[Block]) -> bool:
    """Most of its words say so; a list is something that was written for this job."""
    if any(block.item for block in blocks):
        return False
    closing = sum(len(block.text) for block in blocks if CLOSING.search(block.text))
    return 2 * closing > sum(len(block.text) for block in blocks)
