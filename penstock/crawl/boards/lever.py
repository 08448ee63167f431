"""Lever's boards (https://github.com/lever/postings-api)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import httpx

from penstock.crawl.boards.board import BoardListing, read_title
from penstock.crawl.boards.entry import BoardError, Entry
from penstock.crawl.boards.job import Job, Place, Salary
from penstock.crawl.boards.markup import paragraphs, tame_html
from penstock.crawl.boards.moment import day_of_milliseconds

_PAGE_JOBS = 100
# `per-year-salary`, `per-hour-wage`
_INTERVAL = re.compile(r"per-(year|month|week|day|hour)\b")


@dataclass(frozen=True, slots=True)
class LeverListing(BoardListing):
    """The jobs of a Lever board, page by page."""

    kind: str = field(default="lever", init=False)

    def _entries(self, document: Any) -> Sequence[Any]:
        if not isinstance(document, list):
            raise BoardError("expected a Lever board's JSON: a list of postings")
        return document

    def _next_url(self, received: int, in_all: int) -> str | None:
        url = httpx.URL(self._first_url())
        size = _count(url, "limit") or _PAGE_JOBS
        # More than a page means that the server does not page, and has told everything.
        if received != size:
            return None
        skip = str((_count(url, "skip") or 0) + in_all)
        return str(url.copy_merge_params({"skip": skip, "limit": str(size)}))

    def _job(self, entry: Entry, job_id: str) -> Job:
        url = self._url(entry)
        categories = entry.inside("categories")
        return Job(
            id=job_id,
            title=read_title(entry, "text"),
            url=url,
            company=self._company(url),
            places=_places(categories),
            is_remote=entry.line("workplaceType").lower() == "remote",
            teams=tuple(filter(None, map(categories.line, ("department", "team")))),
            employment_type=categories.line("commitment"),
            date_posted=day_of_milliseconds(entry.number("createdAt")),
            description="\n".join(filter(None, map(str.strip, _sections(entry)))),
            salary=_salary(entry.inside("salaryRange")),
        )


def _count(url: httpx.URL, name: str) -> int | None:
    value = url.params.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else None


def _places(categories: Entry) -> tuple[Place, ...]:
    names = [categories.line("location"), *categories.lines("allLocations")]
    return tuple(map(Place, dict.fromkeys(filter(None, names))))


def _sections(entry: Entry) -> Iterator[str]:
    """The parts of a posting, in the order in which Lever's own page has them."""
    told = entry.prose("description") or entry.prose("opening") + entry.prose("descriptionBody")
    yield tame_html(told) if told else paragraphs(entry.prose("descriptionPlain"))
    for section in entry.each("lists"):
        heading, items = section.line("text"), tame_html(section.prose("content"))
        yield f"<h3>{escape(heading)}</h3>" if heading else ""
        yield f"<ul>{items}</ul>" if items else ""
    yield tame_html(entry.prose("salaryDescription"))
    yield tame_html(entry.prose("additional"))


def _salary(pay: Entry) -> Salary | None:
    least, most = pay.number("min"), pay.number("max")
    if least is None and most is None:
        return None
    interval = _INTERVAL.match(pay.line("interval"))
    return Salary(least, most, pay.line("currency"), interval[1].upper() if interval else "")
