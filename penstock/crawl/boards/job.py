"""A job as every board describes it, and its page with schema.org data."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any


@dataclass(frozen=True, slots=True)
class JobLocation:
    """Where a job is, by the board's own name for it, by its address, or both."""

    name: str = ""
    locality: str = ""
    region: str = ""
    country: str = ""

    def __str__(self) -> str:
        parts = (self.locality, self.region, self.country)
        return self.name or ", ".join(filter(None, parts))


@dataclass(frozen=True, slots=True)
class JobSalary:
    """A range of pay; either end may be open."""

    least: int | float | None
    most: int | float | None
    currency: str = ""
    unit: str = ""
    """YEAR, MONTH, WEEK, DAY or HOUR; empty when the board does not say."""

    def __str__(self) -> str:
        ends = dict.fromkeys(str(end) for end in (self.least, self.most) if end is not None)
        unit = self.unit and f"/ {self.unit.lower()}"
        return " ".join(filter(None, ("–".join(ends), self.currency, unit)))


@dataclass(frozen=True, slots=True)
class BoardJob:
    """One posting, without values that change from one request to the next."""

    id: str
    title: str
    url: str
    company: str = ""
    places: tuple[JobLocation, ...] = ()
    is_remote: bool = False
    teams: tuple[str, ...] = ()
    employment_type: str = ""
    date_posted: str = ""
    """`YYYY-MM-DD`."""
    description: str = ""
    """HTML that is safe to put inside a page."""
    salary: JobSalary | None = None


MEDIA_TYPE = "text/html; charset=utf-8"
# In a script, HTML ends at the first `</script`, wherever it stands.
_SCRIPT_SAFE = str.maketrans({"<": r"\u003c", ">": r"\u003e", "&": r"\u0026"})


def render_job(job: BoardJob) -> bytes:
    """The job as an HTML page."""
    data = json.dumps(_posting(job), ensure_ascii=False).translate(_SCRIPT_SAFE)
    facts = "\n".join(f"<p>{escape(fact)}</p>" for fact in _facts(job))
    page = f"""<!DOCTYPE html>
<html>
<head>
<meta charset="utf-8">
<title>{escape(job.title)}</title>
<link rel="canonical" href="{escape(job.url)}">
<script type="application/ld+json">{data}</script>
</head>
<body>
<main>
<h1>{escape(job.title)}</h1>
{facts}
<div>
{job.description}
</div>
</main>
</body>
</html>
"""
    return page.encode()


def _facts(job: BoardJob) -> Iterator[str]:
    places, teams = "; ".join(map(str, job.places)), " / ".join(job.teams)
    remote = "Remote" if _names_remote(job) else ""
    salary = str(job.salary) if job.salary else ""
    return filter(None, (job.company, places, remote, job.employment_type, teams, salary))


def _posting(job: BoardJob) -> dict[str, Any]:
    """https://schema.org/JobPosting, without empty properties."""
    company = {"@type": "Organization", "name": job.company}
    posting = {
        "@context": "https://schema.org",
        "@type": "JobPosting",
        "title": job.title,
        "url": job.url,
        "identifier": job.id,
        "hiringOrganization": company if job.company else None,
        "jobLocation": [_place(place) for place in job.places],
        "jobLocationType": "TELECOMMUTE" if _names_remote(job) else None,
        "employmentType": job.employment_type,
        "datePosted": job.date_posted,
        "baseSalary": _salary(job.salary) if job.salary else None,
        "description": job.description,
    }
    return {key: value for key, value in posting.items() if value}


def _names_remote(job: BoardJob) -> bool:
    """Whether to add "remote": many boards have it in the name of the location already."""
    return job.is_remote and not any("remote" in str(place).lower() for place in job.places)


def _place(place: JobLocation) -> dict[str, Any]:
    address = {
        "addressLocality": place.locality,
        "addressRegion": place.region,
        "addressCountry": place.country,
    }
    known = {key: value for key, value in address.items() if value}
    # Without an address the name is the best there is, and an address may be a text.
    full = {"@type": "PostalAddress", **known} if known else place.name
    return {"@type": "Place", "name": str(place), "address": full}


def _salary(salary: JobSalary) -> dict[str, Any]:
    value = {"minValue": salary.least, "maxValue": salary.most, "unitText": salary.unit or None}
    known = {key: amount for key, amount in value.items() if amount is not None}
    amount = {"@type": "QuantitativeValue", **known}
    currency = {"currency": salary.currency} if salary.currency else {}
    return {"@type": "MonetaryAmount", **currency, "value": amount}
