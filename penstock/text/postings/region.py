"""The job posting in the text of a page: the densest region below the title."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from typing import Any

from penstock.text.charsets import clean_line
from penstock.text.html import (
    PageText,
    find_all,
    find_densest_run,
    is_hidden,
    parse_tree,
    weigh_line,
)
from penstock.text.postings.blocks import TEMPLATES, Block, read_tree
from penstock.text.postings.fields import PageIdentity, Posting
from penstock.text.postings.headings import Kind, heading_kind, hints_at_job, words_for
from penstock.text.postings.sections import measure, skip_facts, split_blocks

_ASIDE = re.compile(
    r"cookie|consent|(^|[-_ ])(related|similar|recommended|share|social|breadcrumbs?|sidebar"
    r"|newsletter|subscribe|modal|navbar|menu|skip|job-?alerts?|foot(er)?)($|[-_ ])",
    re.IGNORECASE,
)
_ASIDE_TAGS = frozenset({"nav", "footer", "aside", "form", "dialog", "header"})
_ASIDE_ROLES = frozenset(
    {"navigation", "banner", "contentinfo", "dialog", "search", "complementary"}
)
_NOT_PROSE = frozenset({"a", "script", "style"})
_FACT_CHARS = 100
_TITLE_CHARS = 8
_LEAST_BODY = 200
_SHORT_CHARS = 40
_SHORT_HEADING = 60
_PLACE_TERM = re.compile(
    r"(job )?locations?\b|where\b|place\b|(stand|arbeits)?ort\b|lieu\b|ubicac|plaats|luogo", re.I
)
_LOCATION_PLACE = (
    "(.//*[@itemprop='jobLocation' or @itemprop='addressLocality'"
    " or contains(@class, 'location') or contains(@data-qa, 'location')"
    " or contains(@data-automation-id, 'location')])[position() <= 5]"
)
_KEPT_PAGES = (
    ".//iframe/@srcdoc | .//script[contains(@type, 'template') or contains(@type, 'html')]/text()"
)
_SURE = 6
_LEAST_LISTS = 2
_LEAST_BULLETS = 4
# A page that shows so many paragraphs shows its posting, too, if it has one.
_SHOWN_PARAGRAPHS = 5
# A posting is no longer than this; a page of many lists may be.
_MOST_BODY = 12_000
_TEXT_TAGS = ("p", "h2", "h3", "h4", "h5", "h6", "b", "strong", "dt", "summary")
_LISTS = "(//ul | //ol)[li[2]][count(li[not(a)][not(*//a)]) > 1]"
_BULLETS = (
    "count(//text()[starts-with(., '• ') or starts-with(., '- ') or starts-with(., '– ')"
    " or starts-with(., '·')])"
)


def resembles_posting(page: PageText) -> bool:
    """A quick look at whether it is worth to search the page: most pages are something else."""
    lists = (listing for listing in find_all(_LISTS)(page.tree) if _has_heading(listing))
    if next(islice(lists, _LEAST_LISTS - 1, None), None) is not None:
        return True
    texts = [element.text for element in page.tree.iter(*_TEXT_TAGS) if element.text]
    if sum(len(text) > _SHORT_HEADING for text in texts) >= _SHOWN_PARAGRAPHS:
        return hints_at_job("\n".join(text for text in texts if len(text) <= _FACT_CHARS))
    language = page.tree.get("lang")
    return hints_at_job(page.source, language) or find_all(_BULLETS)(page.tree) >= _LEAST_BULLETS


def _has_heading(listing: Any) -> bool:
    """Whether a short text that is no link stands before the list."""
    for part in (listing, *islice(listing.iterancestors(), 2)):
        if (before := part.getprevious()) is not None:
            return 0 < len(_text(before)) <= _FACT_CHARS and before.find(".//a") is None
    return False


def find_page_posting(page: PageText, identity: PageIdentity) -> Posting | None:
    """The posting in the page's text, also where a script reveals it; None when there is none."""
    marked = page.tree.xpath("//*[contains(@itemtype, 'schema.org/JobPosting')]")
    scope = marked[0] if len(marked) == 1 else None
    region = page.tree if scope is None else scope
    for blocks in _readings(region):
        title = _microdata_text(scope, "title") or _shown_title(blocks, identity)
        body = _densest(_below_title(blocks, title))
        if not title or sum(measure(block.text) for block in body) < _LEAST_BODY:
            continue
        if scope is not None or _is_job(page, identity, blocks, body):
            return Posting(
                title=title,
                body=tuple(body),
                company=_microdata_text(scope, "hiringOrganization"),
                location=_find_location(region),
                employment_type=_microdata_text(scope, "employmentType")
                or _find_contract(blocks, body),
                date_posted=_microdata_text(scope, "datePosted"),
            )
    return None


def _readings(region: Any) -> Iterator[list[Block]]:
    """What is shown, what scripts reveal, and the pages kept inside this one."""
    sizes, labels = _prose_sizes(region), _find_labels(region)
    asides = {e for e, size in sizes.items() if 2 * size < sizes[region] and _is_aside(e)}
    hidden = {e for e in sizes if is_hidden(e) or e.tag in TEMPLATES}
    yield read_tree(region, frozenset(asides | hidden), labels=labels)
    if any(sizes[element] >= _LEAST_BODY for element in hidden):
        yield read_tree(region, frozenset(asides), templates=True, labels=labels)
    for kept in region.xpath(_KEPT_PAGES):
        yield read_tree(parse_tree(str(kept)), frozenset(), templates=True)


def _find_labels(region: Any) -> dict[Any, str]:
    """The names of tabs and folded parts, by the elements that they open."""
    named: dict[str, str] = {}
    for control in region.xpath(".//*[@aria-controls or starts-with(@href, '#')]"):
        target = control.get("aria-controls") or control.get("href")[1:]
        text = _text(control)
        if target and 0 < len(text) <= _FACT_CHARS:
            named.setdefault(target, text)
    parts = region.xpath(".//*[@id]") if named else ()
    return {part: named[part.get("id")] for part in parts if part.get("id") in named}


def _prose_sizes(region: Any) -> dict[Any, int]:
    """How many characters each element has in longer texts other than links."""
    sizes: dict[Any, int] = {}
    # Backwards, so that what an element holds comes before it.
    for element in reversed(list(region.iter("*"))):
        texts = (element.text, *(child.tail for child in element))
        own = sum(len(text) for text in texts if text and len(text) > _SHORT_CHARS)
        inside = sum(sizes.get(child, 0) for child in element)
        sizes[element] = 0 if element.tag in _NOT_PROSE else own + inside
    return sizes


def _is_aside(element: Any) -> bool:
    """Whether it is navigation or another part around the content, by its markup."""
    if element.tag in _ASIDE_TAGS or element.get("role") in _ASIDE_ROLES:
        return True
    names = f"{element.get('class') or ''} {element.get('id') or ''}"
    return element.tag not in ("html", "body") and bool(_ASIDE.search(names))


def _shown_title(blocks: Sequence[Block], identity: PageIdentity) -> str:
    """The job's title, also where it is not an h1."""
    title = identity.job_title
    headings = (block.text for block in blocks if 0 < block.rank <= 3)
    shown = (text for text in headings if identity.names(text))
    named = (text for text in shown if heading_kind(text) is Kind.UNKNOWN)
    if title in identity.headings:
        return title
    lines = (block.text for block in blocks if not block.linked and len(block.text) >= _TITLE_CHARS)
    started = (text for text in lines if title.startswith(text))
    return next(named, None) or next(started, title)


def _below_title(blocks: Sequence[Block], title: str) -> list[Block]:
    """From below the title and its facts to the start of other jobs."""
    places = [place for place, block in enumerate(blocks) if block.text == title]
    below = blocks[places[0] + 1 if places else 0 :]
    return skip_facts([*takewhile(lambda block: not _heads_other_jobs(block), below)])


def _heads_other_jobs(block: Block) -> bool:
    """A link to other jobs may stand anywhere."""
    return bool(block.rank) and not block.linked and heading_kind(block.text) is Kind.JOBS


def _densest(blocks: Sequence[Block]) -> list[Block]:
    """The run of blocks with the most text that is neither links nor labels."""
    start, end = find_densest_run(map(_weigh, blocks))
    return [block for block in blocks[start:end] if block.item or not block.linked]


def _weigh(block: Block) -> int:
    weight = weigh_line(block.text, linked=block.linked)
    if block.linked:
        return weight
    return measure(block.text) if block.item else max(weight, 1 if block.rank else weight)


def _is_job(
    page: PageText, identity: PageIdentity, blocks: Sequence[Block], body: Sequence[Block]
) -> bool:
    """Whether enough signs say that the page is about one job."""
    split = split_blocks(body)
    listed = split.lists >= _LEAST_LISTS and sum(measure(b.text) for b in body) <= _MOST_BODY
    parted = Kind.REQUIRED in split.headed
    if not (parted or listed or identity.has_job_address):
        return False
    employs = any(words_for("terms").search(block.text) for block in blocks)
    if not (parted or employs or identity.has_job_address):
        return False
    signs = (
        (4, identity.has_job_address and bool(split.requirements or Kind.ROLE in split.headed)),
        (1, identity.mentions_jobs),
        (2, _has_apply_control(page)),
        (2, Kind.REQUIRED in split.headed),
        (1, bool(split.requirements)),
        (1, Kind.ROLE in split.headed),
        (2, Kind.OFFER in split.headed),
        (1, Kind.COMPANY in split.headed),
        (1, Kind.APPLY in split.headed),
        (1, Kind.LEGAL in split.kinds),
        (4 if listed else 1, employs),
        (-1 if listed and employs else -4, identity.is_article),
    )
    return sum(weight for weight, seen in signs if seen) >= _SURE


def _has_apply_control(page: PageText) -> bool:
    """Whether there is a button or link to apply."""
    controls = page.tree.xpath("//button | //a | //input[@type='submit']")
    texts = (
        control.get("value") or control.get("aria-label") or control.text_content()
        for control in controls
    )
    return any(words_for("control").match(text.strip()) for text in texts)


def _microdata_text(scope: Any, name: str) -> str:
    found = [] if scope is None else scope.xpath(f".//*[@itemprop='{name}']")
    texts = (clean_line(item.get("content") or item.text_content()) for item in found[:1])
    return next((text for text in texts if len(text) <= _FACT_CHARS), "")


def _find_location(region: Any) -> str:
    listed = (term.getnext() for term in region.iter("dt") if _PLACE_TERM.match(_text(term)))
    places = (*(place for place in listed if place is not None), *region.xpath(_LOCATION_PLACE))
    named = (re.sub(r"^locations?:?\s+", "", _text(place), flags=re.I) for place in places)
    return next((text for text in named if 2 < len(text) <= _FACT_CHARS), "")


def _find_contract(blocks: Sequence[Block], body: Sequence[Block]) -> str:
    """The first short line beside the body that states the kind of employment."""
    told = set(body)
    lines = (b.text for b in blocks if len(b.text) <= _FACT_CHARS and not (b.linked or b in told))
    return next(filter(words_for("contract").search, lines), "")


def _text(element: Any) -> str:
    return clean_line(element.text_content())
