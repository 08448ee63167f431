"""A job as a small web page with schema.org data; the same job is always the same bytes."""

import json
from collections.abc import Iterator
from html import escape
from typing import Any

from penstock.crawl.boards.job import Job, Place, Salary

MEDIA_TYPE = "text/html; charset=utf-8"
# In a script, HTML ends at the first `</script`, wherever it stands.
_SCRIPT_SAFE = str.maketrans({"<": r"\u003c", ">": r"\u003e", "&": r"\u0026"})


def render_job(job: Job) -> bytes:
    """The page."""
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


def _facts(job: Job) -> Iterator[str]:
    places = "; ".join(map(str, job.places))
    remote = "Remote" if _is_told_remote(job) else ""
    salary = str(job.salary) if job.salary else ""
    teams = " / ".join(job.teams)
    facts = (job.company, places, remote, job.employment_type, teams, salary)
    yield from filter(None, facts)


def _posting(job: Job) -> dict[str, Any]:
    """https://schema.org/JobPosting, without the properties that nothing is known of."""
    company = {"@type": "Organization", "name": job.company}
    posting = {
        "@context": "https://schema.org",
        "@type": "JobPosting",
        "title": job.title,
        "url": job.url,
        "identifier": job.id,
        "hiringOrganization": company if job.company else None,
        "jobLocation": [_place(place) for place in job.places],
        "jobLocationType": "TELECOMMUTE" if _is_told_remote(job) else None,
        "employmentType": job.employment_type,
        "datePosted": job.date_posted,
        "baseSalary": _salary(job.salary) if job.salary else None,
        "description": job.description,
    }
    return {key: value for key, value in posting.items() if value}


def _is_told_remote(job: Job) -> bool:
    """Whether it has to be said; many boards have it in the name of the place already."""
    return job.is_remote and not any("remote" in str(place).lower() for place in job.places)


def _place(place: Place) -> dict[str, Any]:
    address = {
        "addressLocality": place.locality,
        "addressRegion": place.region,
        "addressCountry": place.country,
    }
    known = {key: value for key, value in address.items() if value}
    # Without an address the name is the best there is, and an address may be a text.
    full = {"@type": "PostalAddress", **known} if known else place.name
    return {"@type": "Place", "name": str(place), "address": full}


def _salary(salary: Salary) -> dict[str, Any]:
    value = {"minValue": salary.least, "maxValue": salary.most, "unitText": salary.unit or None}
    known = {key: amount for key, amount in value.items() if amount is not None}
    amount = {"@type": "QuantitativeValue", **known}
    currency = {"currency": salary.currency} if salary.currency else {}
    return {"@type": "MonetaryAmount", **currency, "value": amount}
