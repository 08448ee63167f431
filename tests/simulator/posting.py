"""Pages with one job each, as careers sites make them: a few kB, mostly not about the job."""

import json
import random
from dataclasses import dataclass
from datetime import datetime
from html import escape

_DOES = ("You look after", "You repair", "You plan", "You inspect", "You draw", "You improve")
_WHAT = ("gates", "pumps", "turbines", "fish passes", "gauges", "spillways", "locks", "screens")
_WHERE = ("below the", "along the", "above the", "inside the", "between the", "near the")
_NEEDS = ("hydraulics", "Python", "welding", "first aid", "GIS", "French", "bookkeeping", "rowing")
# Names that are made up, so that no three words in a row are likely to come twice.
_SYLLABLES = ("ba", "co", "du", "fe", "gi", "la", "mo", "ne", "ri", "sa", "to", "vu")
_PARAGRAPHS, _SENTENCES = 6, 6


def describe_job(seed: str) -> str:
    """Some hundred words about a job, always the same for a seed."""
    dice = random.Random(seed)
    paragraphs = [" ".join(_sentence(dice) for _ in range(_SENTENCES)) for _ in range(_PARAGRAPHS)]
    needs = ", ".join(dice.sample(_NEEDS, 3))
    return "\n".join([*paragraphs, f"You bring {needs}. We answer within ten days"])


def _sentence(dice: random.Random) -> str:
    names = ["".join(dice.choices(_SYLLABLES, k=3)).capitalize() for _ in range(3)]
    does, what, where = (dice.choice(words) for words in (_DOES, _WHAT, _WHERE))
    return f"{does} {names[0]} {what} {where} {names[1]} and {names[2]} dams."


@dataclass(frozen=True)
class Posting:
    """A job. The body is plain text, one paragraph a line."""

    title: str
    body: str
    location: str
    company: str
    posted: datetime
    stamp: str
    """What the footer says of the page itself; not part of the job."""

    @property
    def description(self) -> str:
        """The body as HTML."""
        return "\n".join(f"<p>{escape(line)}</p>" for line in self.body.splitlines())

    def html(self, url: str) -> bytes:
        title, company = escape(self.title), escape(self.company)
        return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title} | {company}</title>
<link rel="canonical" href="{escape(url)}">
<style>{_STYLE}</style>
<script type="application/ld+json">{self._json_ld(url)}</script>
<script>{_SCRIPT}</script>
</head>
<body>
<header><a href="/">{company}</a> <button>Menu</button></header>
<nav><ul>{_NAVIGATION}</ul></nav>
<main>
<h1>{title}</h1>
<p>{company}, {escape(self.location)}</p>
<article>
{self.description}
</article>
</main>
<footer><p>© {company}. All rights reserved. Page made on {escape(self.stamp)}</p></footer>
</body>
</html>
""".encode()

    def _json_ld(self, url: str) -> str:
        data = {
            "@context": "https://schema.org",
            "@type": "JobPosting",
            "title": self.title,
            "description": self.description,
            "url": url,
            "datePosted": self.posted.date().isoformat(),
            "employmentType": "FULL_TIME",
            "hiringOrganization": {"@type": "Organization", "name": self.company},
            "jobLocation": {
                "@type": "Place",
                "address": {"@type": "PostalAddress", "addressLocality": self.location},
            },
        }
        return json.dumps(data).replace("<", "\\u003c")


_STYLE = "\n".join(f".grid-{n} {{ width: {n * 8}%; margin: 0 auto }}" for n in range(1, 13))
_SCRIPT = "window.dataLayer=window.dataLayer||[];function track(e){dataLayer.push({event:e})}"
_NAVIGATION = "".join(
    f'<li><a href="/{name.lower()}">{name}</a></li>'
    for name in ("About", "Locations", "Teams", "Benefits", "Students", "Press", "Contact")
)
