"""Greenhouse's boards (https://developers.greenhouse.io/job-board.html)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.crawl.boards.board import BoardListing, read_title
from penstock.crawl.boards.entry import BoardError, Entry
from penstock.crawl.boards.job import Job, Place, Salary
from penstock.crawl.boards.markup import tame_html, unescape_html
from penstock.crawl.boards.moment import read_day

_EMPLOYMENT_TYPE = "employment type"


@dataclass(frozen=True, slots=True)
class GreenhouseListing(BoardListing):
    """The jobs of a Greenhouse board."""

    kind: str = field(default="greenhouse", init=False)

    def _entries(self, document: Any) -> Sequence[Any]:
        jobs = document.get("jobs") if isinstance(document, dict) else None
        if not isinstance(jobs, list):
            raise BoardError('expected a Greenhouse board\'s JSON: {"jobs": […]}')
        return jobs

    def _job(self, entry: Entry, job_id: str) -> Job:
        url = self._url(entry)
        return Job(
            id=job_id,
            title=read_title(entry, "title"),
            url=url,
            company=entry.line("company_name") or self._company(url),
            places=_places(entry),
            teams=tuple(team.line("name") for team in entry.each("departments")),
            employment_type=_employment_type(entry),
            date_posted=read_day(entry.line("first_published")),
            description=tame_html(unescape_html(entry.prose("content"))),
            salary=_salary(entry),
        )


def _places(entry: Entry) -> tuple[Place, ...]:
    """The job's own place, or its offices when it names none."""
    named = [entry.inside("location").line("name")]
    offices = (office.line("location") or office.line("name") for office in entry.each("offices"))
    names = filter(None, named if any(named) else offices)
    return tuple(map(Place, dict.fromkeys(names)))


def _employment_type(entry: Entry) -> str:
    """Companies name their own fields; this is the usual name of this one."""
    fields = entry.each("metadata")
    found = (f for f in fields if f.line("name").lower() == _EMPLOYMENT_TYPE)
    return next((f.line("value") or ", ".join(f.lines("value")) for f in found), "")


def _salary(entry: Entry) -> Salary | None:
    for pay in entry.each("pay_input_ranges"):
        least, most = _whole(pay.number("min_cents")), _whole(pay.number("max_cents"))
        if least is not None or most is not None:
            return Salary(least, most, pay.line("currency_type"))
    return None


def _whole(cents: int | float | None) -> int | float | None:
    return cents if cents is None else round(cents / 100, 2) if cents % 100 else int(cents // 100)
