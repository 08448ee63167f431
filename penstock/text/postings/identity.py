"""What a page is called and where it lives, to tell which of many things in it it is about."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from penstock.text.characters import clean_line
from penstock.text.html.page import Page

_MOST_HEADINGS = 5
_SHORT_ID = 4
_WORD = re.compile(r"[^\W_]+")
_SEPARATOR = re.compile(r"\s+[|–—·•»:]\s+|\s+-\s+|\s*\|\s*")
_BESIDE = re.compile(r"\s*(?:\||\bat\b|@)\s*([^|]+)")
_PREFIX = re.compile(
    r"^(job application for|jobs?:|careers?:|apply (for|to)|stellenangebot:?)\s+", re.I
)
_HIRING = re.compile(
    r"\b(careers?|jobs?|job (details?|openings?|search)|vacanc\w+|karriere|stellen\w*|emplois?"
    r"|carrières?|empleos?|carreras?|recruit\w*|job id:? ?\S+|hiring|work (at|with) \w+|join us)\b",
    re.IGNORECASE,
)
_JOB_ADDRESS = re.compile(
    r"(?<![a-z])(jobs?|careers?|positions?|vacanc\w+|openings?|postings?|stellen\w*|karriere"
    r"|requisitions?|emplois?|empleos?|opportunit\w+)(?![a-z])"
)
_AROUND_COMPANY = re.compile(
    r"^(careers?|jobs?|work|life|karriere|(offene )?stellen\w*|emplois?|carrières?|empleos?"
    r"|carreras?)"
    r" (at|with|@|bei|chez|en|presso|bij) "
    r"| (careers?|jobs?|hiring|career (site|page)|recruiting|karriere)$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class PageIdentity:
    """The names and addresses a page gives itself."""

    headings: tuple[str, ...]
    titles: tuple[str, ...]
    addresses: tuple[str, ...]
    site: str
    called: str
    """The words of its headings and titles."""
    is_article: bool
    """As it tells those who share it; some sites say so of all their pages."""

    def names(self, title: str) -> bool:
        """Whether the page is called this, alone or with more around it."""
        wanted = _bare_words(title)
        return bool(wanted.strip()) and wanted in self.called

    def has_address_with(self, identifier: str) -> bool:
        """Whether the identifier is a part of one of the page's addresses."""
        if len(identifier) < _SHORT_ID:
            return False
        found = [address for address in self.addresses if identifier in address]
        part = rf"(?<![A-Za-z0-9]){re.escape(identifier)}(?![A-Za-z0-9])"
        return any(re.search(part, address) for address in found)

    @property
    def has_job_address(self) -> bool:
        """Whether an address says that a job is found there."""
        return any(_JOB_ADDRESS.search(address.lower()) for address in self.addresses)

    @property
    def speaks_of_jobs(self) -> bool:
        """Whether the page's titles or its site's name do."""
        return any(_HIRING.search(name) for name in (*self.titles, self.site))

    def find_company(self, job_title: str) -> str:
        """The site's name without `careers` and the like, or what stands beside the job's."""
        called = self.site or self._title_parts()[1] or self._beside((*self.headings, job_title))
        name = _AROUND_COMPANY.sub("", called)
        return "" if _HIRING.fullmatch(name) else name.strip()

    @property
    def job_title(self) -> str:
        """The heading that the page's title repeats, or that title without the site's name."""
        titles = [_bare_words(title) for title in self.titles]
        for heading in self.headings:
            if not titles or any(_bare_words(heading) in title for title in titles):
                return heading
        return self._title_parts()[0] or next(iter(self.headings), "")

    def _title_parts(self) -> tuple[str, str]:
        """(the page's title without the site's name, the site's name as the title has it)."""
        title = _PREFIX.sub("", next(iter(self.titles), ""))
        pieces = _SEPARATOR.split(title)
        site = ""
        while len(pieces) > 1 and self._is_site(pieces[-1]):
            site = pieces.pop()
        return title[: title.rfind(pieces[-1]) + len(pieces[-1])], site

    def _beside(self, headings: Sequence[str]) -> str:
        """What the title says besides a heading, in the ways that name a company."""
        rests = (
            title.partition(heading)[2]
            for title in self.titles
            for heading in headings
            if heading in title
        )
        found = (_BESIDE.fullmatch(rest) for rest in rests)
        return next((match[1] for match in found if match), "")

    def _is_site(self, piece: str) -> bool:
        return _HIRING.search(piece) is not None or _bare_words(piece) == _bare_words(self.site)


def identify_page(page: Page, name: str) -> PageIdentity:
    """The names a page gives itself, and its addresses with the one it was found at."""
    head: dict[str, list[str]] = {}
    for element in page.tree.findall("head/*"):
        for role, value in _head_entry(element):
            head.setdefault(role, []).append(value)
    shown = islice(page.tree.iter("h1"), _MOST_HEADINGS)
    headings = tuple(filter(None, (clean_line(h1.text_content()) for h1 in shown)))
    titles = tuple(map(clean_line, head.get("og:title", []) + head.get("title", [])))
    return PageIdentity(
        headings=headings,
        titles=titles,
        addresses=(name, *head.get("canonical", []), *head.get("og:url", [])),
        site=clean_line(next(iter(head.get("og:site_name", [])), "")),
        called="|".join(map(_bare_words, (*headings, *titles))),
        is_article="article" in map(str.lower, head.get("og:type", [])),
    )


def _head_entry(element: Any) -> Iterator[tuple[str, str]]:
    if element.tag == "meta":
        role = element.get("property") or element.get("name") or ""
        value = element.get("content")
    elif element.tag == "link":
        role, value = element.get("rel") or "", element.get("href")
    else:
        role, value = str(element.tag), element.text
    if value and value.strip():
        yield role, value


def _bare_words(text: str) -> str:
    return f" {' '.join(_WORD.findall(text.casefold()))} "
