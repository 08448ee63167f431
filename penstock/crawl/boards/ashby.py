"""Ashby's boards (https://developers.ashbyhq.com/docs/public-job-posting-api)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.crawl.boards.board import BoardListing, read_title
from penstock.crawl.boards.entry import BoardError, Entry
from penstock.crawl.boards.job import Job, Place, Salary
from penstock.crawl.boards.markup import paragraphs, tame_html
from penstock.crawl.boards.moment import read_day

# In the words of https://schema.org/employmentType.
_EMPLOYMENT_TYPES = {
    "FullTime": "FULL_TIME",
    "PartTime": "PART_TIME",
    "Contract": "CONTRACTOR",
    "Temporary": "TEMPORARY",
    "Intern": "INTERN",
}
_UNITS = frozenset({"YEAR", "MONTH", "WEEK", "DAY", "HOUR"})


@dataclass(frozen=True, slots=True)
class AshbyListing(BoardListing):
    """The jobs that an Ashby board shows."""

    kind: str = field(default="ashby", init=False)

    def _entries(self, document: Any) -> Sequence[Any]:
        jobs = document.get("jobs") if isinstance(document, dict) else None
        if not isinstance(jobs, list):
            raise BoardError('expected an Ashby board\'s JSON: {"jobs": […], "apiVersion": …}')
        return jobs

    def _job(self, entry: Entry, job_id: str) -> Job | None:
        if entry.says("isListed", False):
            return None
        url = self._url(entry)
        kind = entry.line("employmentType")
        teams = dict.fromkeys(map(entry.line, ("department", "team")))
        html = tame_html(entry.prose("descriptionHtml"))
        return Job(
            id=job_id,
            title=read_title(entry, "title"),
            url=url,
            company=self._company(url),
            places=_places(entry),
            is_remote=_is_remote(entry),
            teams=tuple(filter(None, teams)),
            employment_type=_EMPLOYMENT_TYPES.get(kind, kind),
            date_posted=read_day(entry.line("publishedAt")),
            description=html or paragraphs(entry.prose("descriptionPlain")),
            salary=_salary(entry),
        )


def _places(entry: Entry) -> tuple[Place, ...]:
    places = map(_place, (entry, *entry.each("secondaryLocations")))
    return tuple(dict.fromkeys(place for place in places if str(place)))


def _place(entry: Entry) -> Place:
    address = entry.inside("address")
    postal = address.inside("postalAddress") if "postalAddress" in address.values else address
    parts = map(postal.line, ("addressLocality", "addressRegion", "addressCountry"))
    return Place(entry.line("location"), *parts)


def _is_remote(entry: Entry) -> bool:
    """The flag is also set on jobs for which one has to come in now and then."""
    workplace = entry.line("workplaceType").lower()
    return workplace == "remote" if workplace else entry.says("isRemote", True)


def _salary(entry: Entry) -> Salary | None:
    """The first salary of the summary, unless the company keeps it to itself."""
    if entry.says("shouldDisplayCompensationOnJobPostings", False):
        return None
    for part in entry.inside("compensation").each("summaryComponents"):
        least, most = part.number("minValue"), part.number("maxValue")
        if part.line("compensationType") == "Salary" and (least, most) != (None, None):
            unit = part.line("interval").rpartition(" ")[2].upper()
            currency = part.line("currencyCode")
            return Salary(least, most, currency, unit if unit in _UNITS else "")
    return None
