"""Which boards there are, and how to tell one from its address or its answer."""

from typing import Any

from penstock.crawl.boards.address import find_board
from penstock.crawl.boards.ashby import AshbyListing
from penstock.crawl.boards.board import BoardListing, told_kind
from penstock.crawl.boards.greenhouse import GreenhouseListing
from penstock.crawl.boards.lever import LeverListing

BOARDS: dict[str, type[BoardListing]] = {
    "greenhouse": GreenhouseListing,
    "lever": LeverListing,
    "ashby": AshbyListing,
}


def board_at(url: str) -> type[BoardListing] | None:
    """The board that is known to be at a URL."""
    address = find_board(url)
    return BOARDS[address.kind] if address else None


def board_in(document: Any) -> type[BoardListing] | None:
    """The board whose answer a JSON document is; None when it may well be something else."""
    if isinstance(document, list):
        return LeverListing if told_kind(document) == "lever" else None
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list):
        return None
    told = told_kind(jobs) if jobs else _kind_of_empty(document)
    return BOARDS[told] if told in ("greenhouse", "ashby") else None


def _kind_of_empty(document: dict[str, Any]) -> str | None:
    if set(document) == {"jobs", "apiVersion"}:
        return "ashby"
    return "greenhouse" if set(document) <= {"jobs", "meta"} else None
