"""The values of a posting, and the titles and URLs of its page."""

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from penstock.text.charsets import clean_line
from penstock.text.html import PageText
from penstock.text.postings.blocks import Block, Blocks, read_blocks
from penstock.text.postings.headings import Kind

_DEPTH = 12


@dataclass(frozen=True, slots=True)
class Posting:
    """One job as a page describes it."""

    title: str
    body: Blocks
    """The whole posting in reading order."""
    company: str = ""
    location: str = ""
    employment_type: str = ""
    salary: str = ""
    date_posted: str = ""
    valid_through: str = ""


def read_value(value: Any) -> list[Block]:
    """Blocks of a value that may be text, HTML, an object with such, or a list of them."""
    return [block for text in _texts(value, _DEPTH) for block in read_blocks(text)]


def _texts(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, list) and depth:
        for item in value:
            yield from _texts(item, depth - 1)
    elif isinstance(value, Mapping) and depth:
        yield from _texts(value.get("description") or value.get("name"), depth - 1)
        yield from _texts(value.get("value"), depth - 1)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)


def join_fields(fields: Sequence[tuple[Kind, Sequence[Block]]]) -> Blocks:
    """One body of the texts of many fields, without those that others contain.

    Of two equal ones, that with more markup is kept.
    """
    letters = [_letters_only(blocks) for _, blocks in fields]
    marks = [len(blocks) + sum(b.item or b.rank > 0 for b in blocks) for _, blocks in fields]
    order = sorted(range(len(fields)), key=lambda n: (-len(letters[n]), -marks[n]))
    kept: list[int] = []
    for number in order:
        if letters[number] and not any(letters[number] in letters[other] for other in kept):
            kept.append(number)
    return tuple(
        replace(block, kind=fields[n][0], field=n) for n in sorted(kept) for block in fields[n][1]
    )


def _letters_only(blocks: Iterable[Block]) -> str:
    """Only the letters and digits, to compare texts whatever their markup."""
    return re.sub(r"[\W_]+", "", "".join(block.text for block in blocks)).casefold()


def read_line(value: Any) -> str:
    """The value as one line of text."""
    return clean_line(" ".join(block.text for block in read_value(value)))


def join_names(value: Any) -> str:
    """The names in a value, each once."""
    return ", ".join(read_names(value))


def read_names(value: Any, depth: int = _DEPTH) -> list[str]:
    """The names in a value that may be a string, an object with a name, or a list of them."""
    if value is None or isinstance(value, bool) or not depth:
        return []
    if isinstance(value, list):
        return distinct(name for item in value for name in read_names(item, depth - 1))
    if isinstance(value, Mapping):
        keys = ("name", "legalName", "text", "label", "title", "value")
        return read_names(next((value[key] for key in keys if value.get(key)), None), depth - 1)
    return distinct([clean_line(html.unescape(str(value)))])


def distinct(names: Iterable[str]) -> list[str]:
    """The names that are not empty, each once, in their order."""
    return list(dict.fromkeys(filter(None, names)))


def read_place(place: Any) -> str:
    """A place as `city, region, country`, from an address or from its name."""
    if not isinstance(place, Mapping):
        return join_names(place)
    address = place.get("address") or place
    if not isinstance(address, Mapping):
        return join_names(address) or join_names(place)
    parts = (
        ("addressLocality", "city"),
        ("addressRegion", "region", "state"),
        ("addressCountry", "country"),
    )
    values = (next((address[key] for key in keys if address.get(key)), None) for keys in parts)
    names = (name for value in values for name in join_names(value).split(","))
    return ", ".join(distinct(map(str.strip, names))) or join_names(place)


def read_places(places: Any) -> str:
    """All places of a value that may be one or a list."""
    found = [read_place(place) for place in (places if isinstance(places, list) else [places])]
    return "; ".join(distinct(found))


def read_salary(salary: Any) -> str:
    """A salary as `from–to currency / unit`, from schema.org's MonetaryAmount or plain text."""
    if not isinstance(salary, Mapping):
        return join_names(salary)
    value = salary.get("value", salary)
    amounts = value if isinstance(value, Mapping) else {"value": value}
    bounds = [amounts.get("minValue"), amounts.get("maxValue")]
    figures = distinct(str(bound) for bound in bounds if bound is not None)
    amount = "–".join(figures) or join_names(amounts.get("value"))
    unit = join_names(amounts.get("unitText") or salary.get("unitText")).lower()
    currency = join_names(salary.get("currency") or amounts.get("currency"))
    return " ".join(filter(None, (amount, currency, unit and f"/ {unit}"))) if amount else ""


_MOST_HEADINGS = 5
_SHORT_ID = 4
_WORD = re.compile(r"[^\W_]+")
_SEPARATOR = re.compile(r"\s+[|–—·•»:]\s+|\s+-\s+|\s*\|\s*")
_AROUND_TITLE = re.compile(rf"{_SEPARATOR.pattern}|(?:^|\s+)(?:at|@|bei|chez)\s+|:\s+|\s-\s*$")
_MARKS = " |–—·•»:-@"
_PREFIX = re.compile(
    r"^(job application for|jobs?:|careers?:|apply (for|to)|stellenangebot:?)\s+", re.I
)
_HIRING = re.compile(
    r"\b(careers?|jobs?|job (details?|openings?|search)|vacanc\w+|karriere|stellen\w*|emplois?"
    r"|carrières?|empleos?|carreras?|recruit\w*|recrut\w*|vacatures?|vagas?|werken bij|lediga jobb"
    r"|kariera|job id:? ?\S+|hiring|work (at|with) \w+|join us)\b|\([mwfhd]/[mwfhdx](/[dxi])?\)",
    re.IGNORECASE,
)
_JOB_ADDRESS = re.compile(
    r"(?<![a-z])(jobs?|careers?|positions?|vaca\w+|openings?|postings?|stellen\w*|karr?ier\w*|carri?er\w*"
    r"|requisitions?|emplois?|empleos?|opportunit\w+|recrut\w*|recruit\w*|vagas?|lavor\w*|oferta\w*"
    r"|praca|lediga?\w*|stilling\w*|työ\w*|join-us|joboffer\w*|offres?)(?![a-z])"
)


@dataclass(frozen=True, slots=True)
class PageIdentity:
    """The titles and URLs of a page."""

    headings: tuple[str, ...]
    titles: tuple[str, ...]
    addresses: tuple[str, ...]
    site: str
    names_text: str
    """The words of its headings and titles."""
    is_article: bool
    """By its `og:type`; some sites declare that of all their pages."""
    has_job_address: bool
    """One of its URLs contains a word for jobs."""
    mentions_jobs: bool
    """Its titles or its site's name contain a word for jobs."""

    @property
    def is_hiring(self) -> bool:
        return self.has_job_address or self.mentions_jobs

    def names(self, title: str) -> bool:
        """Whether a heading or title of the page contains this."""
        wanted = _normalise_words(title)
        return bool(wanted.strip()) and wanted in self.names_text

    def has_address_with(self, identifier: str) -> bool:
        """Whether the identifier is a part of one of the page's addresses."""
        if len(identifier) < _SHORT_ID:
            return False
        found = [address for address in self.addresses if identifier in address]
        part = rf"(?<![A-Za-z0-9]){re.escape(identifier)}(?![A-Za-z0-9])"
        return any(re.search(part, address) for address in found)

    def names_beside(self, job_title: str) -> Iterator[str]:
        """What stands beside the job in the titles of the page."""
        for title in self.titles:
            rest = _PREFIX.sub("", title).replace(job_title, "|")
            pieces = (piece.strip(_MARKS) for piece in _AROUND_TITLE.split(rest))
            own = _normalise_words(job_title)
            yield from (piece for piece in pieces if piece and _normalise_words(piece) not in own)

    @property
    def job_title(self) -> str:
        """The heading that the page's title repeats, or that title without the site's name."""
        titles = [_normalise_words(title) for title in self.titles]
        for heading in self.headings:
            if not titles or any(_normalise_words(heading) in title for title in titles):
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

    def _is_site(self, piece: str) -> bool:
        named = _normalise_words(piece) == _normalise_words(self.site)
        return named or _HIRING.search(piece) is not None


def identify_page(page: PageText, name: str) -> PageIdentity:
    """The titles of a page, and its URLs with the one it was fetched from."""
    head: dict[str, list[str]] = {}
    for element in page.tree.findall("head/*"):
        role, value = element.tag, element.text
        if role == "meta":
            role = element.get("property") or element.get("name")
            value = element.get("content")
        elif role == "link":
            role, value = element.get("rel"), element.get("href")
        if value and value.strip():
            head.setdefault(role, []).append(value)
    shown = islice(page.tree.iter("h1"), _MOST_HEADINGS)
    headings = tuple(filter(None, (clean_line(h1.text_content()) for h1 in shown)))
    titles = tuple(map(clean_line, head.get("og:title", []) + head.get("title", [])))
    addresses = (name, *head.get("canonical", []), *head.get("og:url", []))
    site = clean_line(next(iter(head.get("og:site_name", [])), ""))
    return PageIdentity(
        headings=headings,
        titles=titles,
        addresses=addresses,
        site=site,
        names_text="|".join(map(_normalise_words, (*headings, *titles))),
        is_article="article" in map(str.lower, head.get("og:type", [])),
        has_job_address=any(_JOB_ADDRESS.search(address.lower()) for address in addresses),
        mentions_jobs=any(_HIRING.search(text) for text in (*titles, site)),
    )


def _normalise_words(text: str) -> str:
    return f" {' '.join(_WORD.findall(text.casefold()))} "
