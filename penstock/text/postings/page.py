"""Job postings told from the page people see: microdata, headings, and what stands below them."""

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

from penstock.text.characters import clean_line
from penstock.text.html.page import Page
from penstock.text.html.tree import is_hidden
from penstock.text.postings.blocks import Block, read_tree
from penstock.text.postings.fields import Posting
from penstock.text.postings.identity import PageIdentity
from penstock.text.postings.requirements import (
    asks,
    demands,
    names_requirements,
    names_section,
    names_tasks,
    split_blocks,
)

_PARAGRAPH_CHARS = 100
_FACT_CHARS = 100
_LEAST_BODY = 200
_LEAST_DEMANDS = 2

_ASIDE = re.compile(
    r"cookie|consent"
    r"|(^|[-_ ])(related|similar|recommended|share|social|breadcrumbs?|sidebar|newsletter"
    r"|subscribe|modal|navbar|menu|skip|job-?alerts?|footer|apply|application)($|[-_ ])",
    re.IGNORECASE,
)
_ASIDE_TAGS = frozenset({"nav", "footer", "aside", "form", "dialog", "header"})
_ASIDE_ROLES = frozenset(
    {"navigation", "banner", "contentinfo", "dialog", "search", "complementary"}
)
_APPLY = re.compile(
    r"^((easy |quick )?apply(\W*$|\s+(now|here|today|online|directly|for|to|with|via|on|as)\b)"
    r"|submit (your )?application|i.m interested|(jetzt |online )?bewerben|postuler"
    r"|candidater|aplicar|inscr[ií]b|solicitar|candidatar|candidati\b|solliciteer)",
    re.IGNORECASE,
)
# Below these, a page is about other jobs.
_OTHER_JOBS = re.compile(
    r"^(related|similar|recommended|other|more|recently|latest) (?!about).{0,20}"
    r"(jobs?|roles?|positions?|openings|opportunities|viewed)\b|you might also|jobs like"
    r"|^ähnliche (stellen|jobs)|^offres similaires|^(ofertas|empleos) similares",
    re.IGNORECASE,
)
# Below these too, or about applying for this one; but some pages have them on top as well.
_END = re.compile(
    rf"{_OTHER_JOBS.pattern}|^(explore|see|view|search) .{{0,12}}(jobs|openings)"
    r"|^apply (now|for this|to this|here|online|today)\b|^(share|save|print) this"
    r"|^create a job alert|^submit your application|^\W*indicates a required"
    r"|get (notified|job alerts)|^voluntary self",
    re.IGNORECASE,
)
_PLACE_TERM = re.compile(r"(job )?locations?\b|where\b|place\b|(stand)?ort\b|lieu\b|ubicac", re.I)
_LOCATION_PLACE = (
    "(.//*[@itemprop='jobLocation' or @itemprop='addressLocality'"
    " or contains(@class, 'location') or contains(@data-qa, 'location')"
    " or contains(@data-automation-id, 'location')])[position() <= 5]"
)


def find_page_posting(page: Page, identity: PageIdentity) -> Posting | None:
    """The posting a person would read on the page; None when it is not about one job."""
    scope = _microdata(page)
    hiring = identity.has_job_address or identity.speaks_of_jobs
    if scope is None and not hiring and not _invites(page):
        return None
    region = page.tree if scope is None else scope
    blocks = list(read_tree(region, frozenset(_asides(region))))
    title = _microdata_text(scope, "title") or _shown_title(blocks, identity)
    body = _cut(blocks, title)
    asked = split_blocks(body)[1]
    if not title or sum(len(block.text) for block in body) < _LEAST_BODY:
        return None
    if scope is None and not _is_job(page, identity, body, asked):
        return None
    return Posting(
        title=title,
        body=tuple(body),
        company=_microdata_text(scope, "hiringOrganization"),
        location=_find_location(region),
        employment_type=_microdata_text(scope, "employmentType"),
        date_posted=_microdata_text(scope, "datePosted"),
    )


def _microdata(page: Page) -> Any:
    found = page.tree.xpath("//*[contains(@itemtype, 'schema.org/JobPosting')]")
    return found[0] if len(found) == 1 else None


def _microdata_text(scope: Any, name: str) -> str:
    found = [] if scope is None else scope.xpath(f".//*[@itemprop='{name}']")
    texts = (clean_line(item.get("content") or item.text_content()) for item in found[:1])
    return next((text for text in texts if len(text) <= _FACT_CHARS), "")


def _find_location(region: Any) -> str:
    listed = (term.getnext() for term in region.iter("dt") if _PLACE_TERM.match(_text(term)))
    places = (*(place for place in listed if place is not None), *region.xpath(_LOCATION_PLACE))
    texts = map(_text, places)
    named = (re.sub(r"^locations?:?\s+", "", text, flags=re.IGNORECASE) for text in texts)
    return next((text for text in named if 2 < len(text) <= _FACT_CHARS), "")


def _text(element: Any) -> str:
    return clean_line(element.text_content())


def _asides(region: Any) -> Iterator[Any]:
    """What frames the page; an element with the page's heading in it is no frame."""
    for element in region.iter():
        if isinstance(element.tag, str) and _is_aside(element) and not _holds_content(element):
            yield element


def _is_aside(element: Any) -> bool:
    if element.tag in _ASIDE_TAGS or element.get("role") in _ASIDE_ROLES or is_hidden(element):
        return True
    names = f"{element.get('class') or ''} {element.get('id') or ''}"
    return element.tag not in ("html", "body") and bool(_ASIDE.search(names))


def _holds_content(element: Any) -> bool:
    if element.find(".//h1") is not None:
        return True
    headings = (heading.text_content() for heading in element.xpath(".//h2 | .//h3 | .//strong"))
    return any(names_section(text) and not _END.search(text) for text in headings)


def _shown_title(blocks: Sequence[Block], identity: PageIdentity) -> str:
    """Some pages mark the job's title with a lesser heading."""
    title = identity.job_title
    headings = (block.text for block in blocks if 0 < block.rank <= 3)
    shown = (text for text in headings if not names_section(text) and identity.names(text))
    return next(shown, title) if title not in identity.headings else title


def _cut(blocks: Sequence[Block], title: str) -> list[Block]:
    """From below the title and its facts to where other jobs or the application form begin."""
    places = [place for place, block in enumerate(blocks) if block.text == title]
    below = list(takewhile(_is_own, blocks[places[0] + 1 if places else 0 :]))
    starts = (place for place, block in enumerate(below) if _starts(block, title))
    start = next(starts, len(below))
    asking = (place for place, block in enumerate(below) if block.rank and asks(block.text))
    told = max(start, next(asking, start))
    ends = (place for place, block in enumerate(below) if place > told and _ends(block))
    body = below[start : next(ends, len(below))]
    return [block for block in body if block.item or not (block.linked or _ends(block))]


def _is_own(block: Block) -> bool:
    """Whether it is not the heading above other jobs; a mere link leads to them."""
    return not (block.rank and not block.linked and _OTHER_JOBS.search(block.text))


def _starts(block: Block, title: str) -> bool:
    if block.text == title or block.linked:
        return False
    return len(block.text) >= _PARAGRAPH_CHARS or (block.rank > 0 and names_section(block.text))


def _ends(block: Block) -> bool:
    return not block.item and len(block.text) <= _FACT_CHARS and bool(_END.search(block.text))


def _is_job(
    page: Page, identity: PageIdentity, body: Sequence[Block], asked: Sequence[Block]
) -> bool:
    """Something is asked of the applicant, and other things speak of a job too."""
    named = any(names_requirements(block.text) for block in asked if not block.item)
    demanding = sum(demands(block.text) for block in asked) >= _LEAST_DEMANDS
    if not named and not demanding:
        return False
    if identity.has_job_address != identity.is_article:
        return identity.has_job_address
    # Nothing says what the page is, or two things that contradict each other.
    tasks = any(block.rank and names_tasks(block.text) for block in body)
    return (tasks or identity.speaks_of_jobs) and _invites(page)


def _invites(page: Page) -> bool:
    """Whether there is something to click on for those who want to apply."""
    controls = page.tree.xpath("//button | //a | //input[@type='submit']")
    texts = (
        control.get("value") or control.get("aria-label") or control.text_content()
        for control in controls
    )
    return any(_APPLY.match(text.strip()) for text in texts)
