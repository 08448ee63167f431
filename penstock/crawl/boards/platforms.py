"""The known job boards: Greenhouse, Lever and Ashby, and which of them a document is from."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import httpx

from penstock.crawl.boards.base import (
    BoardError,
    BoardListing,
    BoardRecord,
    day_of_milliseconds,
    kind_of_jobs,
    read_day,
    safe_html,
    text_to_html,
    unescape_html,
)
from penstock.crawl.boards.job import BoardJob, JobLocation, JobSalary


@dataclass(frozen=True, slots=True)
class GreenhouseListing(BoardListing):
    """The jobs of a Greenhouse board (https://developers.greenhouse.io/job-board.html)."""

    kind: str = field(default="greenhouse", init=False)

    def _entries(self, document: Any) -> Sequence[Any]:
        jobs = _listed_jobs(document)
        if jobs is None:
            raise BoardError('expected a Greenhouse board\'s JSON: {"jobs": […]}')
        return jobs

    def _job(self, entry: BoardRecord, job_id: str) -> BoardJob:
        url = self._url(entry)
        return BoardJob(
            id=job_id,
            title=entry.title("title"),
            url=url,
            company=entry.line("company_name") or self._company(url),
            places=_greenhouse_places(entry),
            teams=tuple(team.line("name") for team in entry.objects("departments")),
            employment_type=_greenhouse_employment_type(entry),
            date_posted=read_day(entry.line("first_published")),
            description=safe_html(unescape_html(entry.long_text("content"))),
            salary=_greenhouse_salary(entry),
        )


def _greenhouse_places(entry: BoardRecord) -> tuple[JobLocation, ...]:
    """The job's own place, or its offices when it names none."""
    named = entry.object("location").line("name")
    offices = (
        office.line("location") or office.line("name") for office in entry.objects("offices")
    )
    names = [named] if named else filter(None, offices)
    return tuple(map(JobLocation, dict.fromkeys(names)))


def _greenhouse_employment_type(entry: BoardRecord) -> str:
    """Companies name their own fields; this is the usual name of this one."""
    fields = entry.objects("metadata")
    found = (f for f in fields if f.line("name").lower() == "employment type")
    return next((f.line("value") or ", ".join(f.lines("value")) for f in found), "")


def _greenhouse_salary(entry: BoardRecord) -> JobSalary | None:
    for pay in entry.objects("pay_input_ranges"):
        least, most = _whole(pay.number("min_cents")), _whole(pay.number("max_cents"))
        if least is not None or most is not None:
            return JobSalary(least, most, pay.line("currency_type"))
    return None


def _whole(cents: int | float | None) -> int | float | None:
    return cents if cents is None else round(cents / 100, 2) if cents % 100 else int(cents // 100)


_LEVER_PAGE_JOBS = 100
# `per-year-salary`, `per-hour-wage`
_LEVER_INTERVAL = re.compile(r"per-(year|month|week|day|hour)\b")


@dataclass(frozen=True, slots=True)
class LeverListing(BoardListing):
    """The jobs of a Lever board, page by page (https://github.com/lever/postings-api)."""

    kind: str = field(default="lever", init=False)

    def _entries(self, document: Any) -> Sequence[Any]:
        if not isinstance(document, list):
            raise BoardError("expected a Lever board's JSON: a list of postings")
        return document

    def _next_url(self, received: int, in_all: int) -> str | None:
        url = httpx.URL(self._first_url())
        size = _count(url, "limit") or _LEVER_PAGE_JOBS
        # More than a page means that the server does not page and has sent everything.
        if received != size:
            return None
        skip = str((_count(url, "skip") or 0) + in_all)
        return str(url.copy_merge_params({"skip": skip, "limit": str(size)}))

    def _job(self, entry: BoardRecord, job_id: str) -> BoardJob:
        url = self._url(entry)
        categories = entry.object("categories")
        names = [categories.line("location"), *categories.lines("allLocations")]
        return BoardJob(
            id=job_id,
            title=entry.title("text"),
            url=url,
            company=self._company(url),
            places=tuple(map(JobLocation, dict.fromkeys(filter(None, names)))),
            is_remote=entry.line("workplaceType").lower() == "remote",
            teams=tuple(filter(None, map(categories.line, ("department", "team")))),
            employment_type=categories.line("commitment"),
            date_posted=day_of_milliseconds(entry.number("createdAt")),
            description="\n".join(filter(None, map(str.strip, _lever_sections(entry)))),
            salary=_lever_salary(entry.object("salaryRange")),
        )


def _count(url: httpx.URL, name: str) -> int | None:
    value = url.params.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else None


def _lever_sections(entry: BoardRecord) -> Iterator[str]:
    """The parts of a posting, in the order in which Lever's own page has them."""
    html = entry.long_text("description") or entry.long_text("opening") + entry.long_text(
        "descriptionBody"
    )
    yield safe_html(html) if html else text_to_html(entry.long_text("descriptionPlain"))
    for section in entry.objects("lists"):
        heading, items = section.line("text"), safe_html(section.long_text("content"))
        yield f"<h3>{escape(heading)}</h3>" if heading else ""
        yield f"<ul>{items}</ul>" if items else ""
    yield safe_html(entry.long_text("salaryDescription"))
    yield safe_html(entry.long_text("additional"))


def _lever_salary(pay: BoardRecord) -> JobSalary | None:
    least, most = pay.number("min"), pay.number("max")
    if least is None and most is None:
        return None
    interval = _LEVER_INTERVAL.match(pay.line("interval"))
    return JobSalary(least, most, pay.line("currency"), interval[1].upper() if interval else "")


# In the words of https://schema.org/employmentType.
_ASHBY_EMPLOYMENT_TYPES = {
    "FullTime": "FULL_TIME",
    "PartTime": "PART_TIME",
    "Contract": "CONTRACTOR",
    "Temporary": "TEMPORARY",
    "Intern": "INTERN",
}
_ASHBY_UNITS = frozenset({"YEAR", "MONTH", "WEEK", "DAY", "HOUR"})


@dataclass(frozen=True, slots=True)
class AshbyListing(BoardListing):
    """The jobs that an Ashby board shows
    (https://developers.ashbyhq.com/docs/public-job-posting-api)."""

    kind: str = field(default="ashby", init=False)

    def _entries(self, document: Any) -> Sequence[Any]:
        jobs = _listed_jobs(document)
        if jobs is None:
            raise BoardError('expected an Ashby board\'s JSON: {"jobs": […], "apiVersion": …}')
        return jobs

    def _job(self, entry: BoardRecord, job_id: str) -> BoardJob | None:
        if entry.is_flag("isListed", False):
            return None
        url = self._url(entry)
        kind, workplace = entry.line("employmentType"), entry.line("workplaceType").lower()
        teams = dict.fromkeys(map(entry.line, ("department", "team")))
        places = map(_ashby_place, (entry, *entry.objects("secondaryLocations")))
        html = safe_html(entry.long_text("descriptionHtml"))
        return BoardJob(
            id=job_id,
            title=entry.title("title"),
            url=url,
            company=self._company(url),
            places=tuple(dict.fromkeys(place for place in places if str(place))),
            # The flag is also set on jobs for which one has to come in now and then.
            is_remote=workplace == "remote" if workplace else entry.is_flag("isRemote", True),
            teams=tuple(filter(None, teams)),
            employment_type=_ASHBY_EMPLOYMENT_TYPES.get(kind, kind),
            date_posted=read_day(entry.line("publishedAt")),
            description=html or text_to_html(entry.long_text("descriptionPlain")),
            salary=_ashby_salary(entry),
        )


def _ashby_place(entry: BoardRecord) -> JobLocation:
    address = entry.object("address")
    postal = address.object("postalAddress") if "postalAddress" in address.values else address
    parts = map(postal.line, ("addressLocality", "addressRegion", "addressCountry"))
    return JobLocation(entry.line("location"), *parts)


def _ashby_salary(entry: BoardRecord) -> JobSalary | None:
    """The first salary of the summary, unless the company keeps it to itself."""
    if entry.is_flag("shouldDisplayCompensationOnJobPostings", False):
        return None
    for part in entry.object("compensation").objects("summaryComponents"):
        least, most = part.number("minValue"), part.number("maxValue")
        if part.line("compensationType") == "Salary" and (least, most) != (None, None):
            unit = part.line("interval").rpartition(" ")[2].upper()
            currency = part.line("currencyCode")
            return JobSalary(least, most, currency, unit if unit in _ASHBY_UNITS else "")
    return None


def _listed_jobs(document: Any) -> list[Any] | None:
    jobs = document.get("jobs") if isinstance(document, dict) else None
    return jobs if isinstance(jobs, list) else None


BOARDS: dict[str, type[BoardListing]] = {
    "greenhouse": GreenhouseListing,
    "lever": LeverListing,
    "ashby": AshbyListing,
}


def board_in(document: Any) -> type[BoardListing] | None:
    """The board that a JSON document is from; None when it may be something else."""
    if isinstance(document, list):
        return LeverListing if kind_of_jobs(document) == "lever" else None
    jobs = _listed_jobs(document)
    if jobs is None:
        return None
    kind = kind_of_jobs(jobs)
    if not jobs and set(document) == {"jobs", "apiVersion"}:
        kind = "ashby"
    elif not jobs and set(document) <= {"jobs", "meta"}:
        kind = "greenhouse"
    return BOARDS[kind] if kind in ("greenhouse", "ashby") else None
