"""The ways in which a careers site lists its jobs: sitemap, feed, boards, links."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime
from html import escape
from typing import Any

from tests.simulator.posting import Posting


@dataclass(frozen=True)
class Job:
    """A listed page. Files are listed too, but boards and feeds know only of postings."""

    number: int
    url: str
    changed: datetime
    posting: Posting | None


def render_sitemap(jobs: Sequence[Job]) -> bytes:
    entries = "".join(
        f"<url><loc>{escape(job.url)}</loc><lastmod>{job.changed.isoformat()}</lastmod></url>\n"
        for job in jobs
    )
    namespace = "http://www.sitemaps.org/schemas/sitemap/0.9"
    return f'<?xml version="1.0"?>\n<urlset xmlns="{namespace}">\n{entries}</urlset>'.encode()


def render_links(jobs: Sequence[Job]) -> bytes:
    items = "\n".join(
        f'<li><a href="{escape(job.url)}">{escape(_title(job))}</a></li>' for job in jobs
    )
    page = f"<!DOCTYPE html><title>Jobs</title><main><h1>Open jobs</h1><ul>\n{items}\n</ul></main>"
    return page.encode()


def render_feed(jobs: Sequence[Job], url: str) -> bytes:
    """RSS 2.0."""
    items = "\n".join(
        f"<item><title>{escape(job.posting.title)}</title><link>{escape(job.url)}</link>"
        f'<guid isPermaLink="true">{escape(job.url)}</guid>'
        f"<pubDate>{format_datetime(job.posting.posted)}</pubDate>"
        f"<description>{escape(job.posting.description)}</description></item>"
        for job in jobs
        if job.posting
    )
    head = f"<title>Jobs</title><link>{escape(url)}</link><description>Open jobs</description>"
    channel = f"<channel>{head}\n{items}</channel>"
    return f'<?xml version="1.0"?>\n<rss version="2.0">{channel}</rss>'.encode()


def render_greenhouse(jobs: Sequence[Job]) -> bytes:
    entries = [
        {
            "id": job.number,
            "title": job.posting.title,
            "absolute_url": job.url,
            "location": {"name": job.posting.location},
            "company_name": job.posting.company,
            "updated_at": job.changed.isoformat(),
            "first_published": job.posting.posted.isoformat(),
            # Greenhouse escapes its HTML once more.
            "content": escape(job.posting.description),
        }
        for job in jobs
        if job.posting
    ]
    return _json({"jobs": entries, "meta": {"total": len(entries)}})


def render_lever(jobs: Sequence[Job], skip: int, limit: int) -> bytes:
    entries = [
        {
            "id": f"lever-{job.number}",
            "text": job.posting.title,
            "hostedUrl": job.url,
            "categories": {"location": job.posting.location, "commitment": "Full-time"},
            "createdAt": int(job.posting.posted.timestamp() * 1000),
            "description": job.posting.description,
            "descriptionPlain": job.posting.body,
        }
        for job in jobs
        if job.posting
    ]
    return _json(entries[skip : skip + limit])


def render_ashby(jobs: Sequence[Job]) -> bytes:
    entries = [
        {
            "id": f"ashby-{job.number}",
            "title": job.posting.title,
            "jobUrl": job.url,
            "location": job.posting.location,
            "employmentType": "FullTime",
            "isListed": True,
            "publishedAt": job.posting.posted.isoformat(),
            "descriptionHtml": job.posting.description,
            "descriptionPlain": job.posting.body,
        }
        for job in jobs
        if job.posting
    ]
    return _json({"jobs": entries, "apiVersion": "1"})


def _title(job: Job) -> str:
    return job.posting.title if job.posting else job.url.rpartition("/")[2]


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
