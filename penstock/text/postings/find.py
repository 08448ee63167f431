"""The job posting of a web page: from JSON-LD, then embedded state, then the page itself."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import filterfalse, takewhile
from typing import Any

from penstock.documents import ExtractedText
from penstock.text.charsets import clean_line
from penstock.text.html import PageText, is_hidden
from penstock.text.media_types import HTML
from penstock.text.postings.blocks import (
    TASKS,
    Block,
    Blocks,
    drop_closing,
    find_pay_range,
    join_blocks,
    letters_only,
    read_tree,
    split_long_paragraphs,
)
from penstock.text.postings.fields import (
    PageIdentity,
    Posting,
    distinct,
    identify_page,
    join_names,
    read_line,
    read_names,
    read_places,
    read_salary,
    read_value,
)
from penstock.text.postings.json_state import find_state_posting
from penstock.text.postings.sections import (
    Kind,
    heading_kind,
    mentions_skills,
    names_section,
    split_blocks,
)

SCHEMA_TYPE = "JobPosting"
_REQUIREMENTS = ("qualifications", "experienceRequirements", "educationRequirements", "skills")
_MOST_VALUES = 50_000
# Some sites wrap the script in comment or CDATA marks, for old browsers.
_COMMENT_MARKS = re.compile(r"^\s*(/\*|//|<!--|<!\[CDATA\[|\*/)+|(/\*|//|-->|\]\]>|\*/|;)+\s*$")


def find_linked_posting(page: PageText, identity: PageIdentity) -> Posting | None:
    """The posting of the page; None when it has none, or several and none matches its title."""
    postings = [posting for node in _nodes(page) if (posting := _read_posting(node)).title]
    if len({posting.title for posting in postings}) > 1:
        postings = [posting for posting in postings if identity.names(posting.title)]
    return max(postings, key=lambda posting: len(posting.body), default=None)


def _nodes(page: PageText) -> Iterator[Mapping[str, Any]]:
    if SCHEMA_TYPE not in page.source:
        return
    for script in page.tree.xpath("//script[contains(@type, 'ld+json')]"):
        with suppress(ValueError, RecursionError):
            source = _COMMENT_MARKS.sub("", script.text or "")
            yield from _find_nodes(json.loads(source, strict=False))


def _find_nodes(root: Any) -> Iterator[Mapping[str, Any]]:
    stack = [root]
    for _ in range(_MOST_VALUES):
        if not stack:
            return
        node = stack.pop()
        if isinstance(node, list):
            stack.extend(reversed(node))
        elif isinstance(node, dict):
            kinds = node.get("@type")
            if SCHEMA_TYPE in (kinds if isinstance(kinds, list) else [kinds]):
                yield node
            else:
                stack.extend(value for value in node.values() if isinstance(value, dict | list))


def _read_posting(node: Mapping[str, Any]) -> Posting:
    description = read_value(node.get("description"))
    known = {block.text for block in description}
    tasks = [block for block in read_value(node.get("responsibilities")) if block.text not in known]
    places = [read_places(node.get("jobLocation"))]
    if "TELECOMMUTE" in read_names(node.get("jobLocationType")):
        places.append(f"Remote {join_names(node.get('applicantLocationRequirements'))}".strip())
    return Posting(
        title=read_line(node.get("title") or node.get("name")),
        body=(*description, *tasks),
        requirements=tuple(block for key in _REQUIREMENTS for block in read_value(node.get(key))),
        company=join_names(node.get("hiringOrganization")),
        location="; ".join(distinct(places)),
        employment_type=join_names(node.get("employmentType")),
        salary=read_salary(node.get("baseSalary") or node.get("estimatedSalary")),
        date_posted=join_names(node.get("datePosted")),
        valid_through=join_names(node.get("validThrough")),
    )


_PARAGRAPH_CHARS = 100
_FACT_CHARS = 100
_LEAST_BODY = 200
_LEAST_SKILLS = 2

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
# Headings of lists of other jobs.
_OTHER_JOBS = re.compile(
    r"^(related|similar|recommended|other|more|recently|latest) (?!about).{0,20}"
    r"(jobs?|roles?|positions?|openings|opportunities|viewed)\b|you might also|jobs like"
    r"|^ähnliche (stellen|jobs)|^offres similaires|^(ofertas|empleos) similares",
    re.IGNORECASE,
)
# The same, and headings about applying, which some pages have at the top as well.
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


def find_page_posting(page: PageText, identity: PageIdentity) -> Posting | None:
    """The posting in the visible page; None when it is not about one job."""
    marked = page.tree.xpath("//*[contains(@itemtype, 'schema.org/JobPosting')]")
    scope = marked[0] if len(marked) == 1 else None
    hiring = identity.has_job_address or identity.mentions_jobs
    if scope is None and not hiring and not _has_apply_control(page):
        return None
    region = page.tree if scope is None else scope
    asides = filterfalse(_holds_content, filter(_is_aside, region.iter("*")))
    blocks = read_tree(region, frozenset(asides))
    title = _microdata_text(scope, "title") or _shown_title(blocks, identity)
    body = _cut(blocks, title)
    required = split_blocks(body)[1]
    if not title or sum(len(block.text) for block in body) < _LEAST_BODY:
        return None
    if scope is None and not _is_job(page, identity, body, required):
        return None
    return Posting(
        title=title,
        body=tuple(body),
        company=_microdata_text(scope, "hiringOrganization"),
        location=_find_location(region),
        employment_type=_microdata_text(scope, "employmentType"),
        date_posted=_microdata_text(scope, "datePosted"),
    )


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


def _is_aside(element: Any) -> bool:
    """Whether it is navigation or another part around the content."""
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
    """The job's title, also where it is not an h1."""
    title = identity.job_title
    headings = (block.text for block in blocks if 0 < block.rank <= 3)
    shown = (text for text in headings if not names_section(text) and identity.names(text))
    return next(shown, title) if title not in identity.headings else title


def _cut(blocks: Sequence[Block], title: str) -> list[Block]:
    """From below the title and its facts to the start of other jobs or the application form."""
    places = [place for place, block in enumerate(blocks) if block.text == title]
    below = list(takewhile(_is_own, blocks[places[0] + 1 if places else 0 :]))
    start = next((n for n, block in enumerate(below) if _starts(block, title)), len(below))
    headings = ((n, block.text) for n, block in enumerate(below) if block.rank)
    asking = (n for n, text in headings if heading_kind(text) >= Kind.EXPECTATIONS)
    first_end = max(start, next(asking, start))
    ends = (n for n, block in enumerate(below) if n > first_end and _ends(block))
    body = below[start : next(ends, len(below))]
    return [block for block in body if block.item or not (block.linked or _ends(block))]


def _is_own(block: Block) -> bool:
    """Whether it is not the heading of other jobs; a link to them is allowed."""
    return not (block.rank and not block.linked and _OTHER_JOBS.search(block.text))


def _starts(block: Block, title: str) -> bool:
    if block.text == title or block.linked:
        return False
    return len(block.text) >= _PARAGRAPH_CHARS or (block.rank > 0 and names_section(block.text))


def _ends(block: Block) -> bool:
    return not block.item and len(block.text) <= _FACT_CHARS and bool(_END.search(block.text))


def _is_job(
    page: PageText, identity: PageIdentity, body: Sequence[Block], required: Sequence[Block]
) -> bool:
    """Whether there are requirements, and other signs of a job."""
    headings = (block.text for block in required if not block.item)
    named = any(heading_kind(text) is Kind.REQUIREMENTS for text in headings)
    skilled = sum(mentions_skills(block.text) for block in required) >= _LEAST_SKILLS
    if not named and not skilled:
        return False
    if identity.has_job_address != identity.is_article:
        return identity.has_job_address
    # No sign of what the page is, or two that contradict each other.
    tasks = any(block.rank and TASKS.search(block.text) for block in body)
    return (tasks or identity.mentions_jobs) and _has_apply_control(page)


def _has_apply_control(page: PageText) -> bool:
    """Whether there is a button or link to apply."""
    controls = page.tree.xpath("//button | //a | //input[@type='submit']")
    texts = (
        control.get("value") or control.get("aria-label") or control.text_content()
        for control in controls
    )
    return any(_APPLY.match(text.strip()) for text in texts)


# Short values beside a posting's body (`Java, SQL`) repeat what its requirements say.
_TAGS_CHARS = 120
_FACTS = ("company", "location", "employment_type", "salary", "date_posted", "valid_through")
_SHOWN_FACTS = ("company", "location", "employment_type", "salary")
# Most postings contain one of these, and few other pages do. Long words are found fastest, and
# every page is searched for them.
_HINTS = ("JobPosting", "esponsibilit", "ualification", "equirement")


@dataclass(frozen=True, slots=True)
class _SplitPosting:
    """A posting with its body split into description and requirements."""

    posting: Posting
    description: Blocks
    required: Blocks


def extract_posting(page: PageText, name: str = "") -> ExtractedText | None:
    """The posting as fields and ordered text; None when the page is not about one job."""
    identity = identify_page(page, name)
    hiring = identity.has_job_address or identity.mentions_jobs
    if not hiring and not any(hint in page.source for hint in _HINTS):
        return None
    found = _find(page, identity)
    return _describe(found, identity) if found else None


def _find(page: PageText, identity: PageIdentity) -> _SplitPosting | None:
    """The first posting with separate requirements, with the facts of the first one found."""
    first: _SplitPosting | None = None
    for find in (find_linked_posting, find_state_posting, find_page_posting):
        posting = find(page, identity)
        if not posting:
            continue
        found = _split(posting)
        if first and found.required:
            facts = {
                fact: getattr(first.posting, fact) or getattr(found.posting, fact)
                for fact in _FACTS
            }
            merged = replace(found.posting, title=first.posting.title, **facts)
            return replace(found, posting=merged)
        if found.required:
            return found
        first = first or (found if found.description else None)
    return first and _split(
        replace(first.posting, body=tuple(split_long_paragraphs(first.posting.body)))
    )


def _split(posting: Posting) -> _SplitPosting:
    body = drop_closing(posting.body)
    description, required = split_blocks(body, headed=bool(posting.requirements))
    kept_apart = _new_blocks(posting.requirements, required)
    if required and sum(len(block.text) for block in kept_apart) < _TAGS_CHARS:
        kept_apart = []
    repeated = {block.text for block in kept_apart}
    description = [block for block in description if block.text not in repeated]
    salary = posting.salary or find_pay_range(posting.body)
    return _SplitPosting(
        replace(posting, salary=salary), tuple(description), (*required, *kept_apart)
    )


def _new_blocks(blocks: Sequence[Block], known: Sequence[Block]) -> list[Block]:
    letters = letters_only(known)
    return [block for block in blocks if letters_only([block]) not in letters]


def _describe(found: _SplitPosting, identity: PageIdentity) -> ExtractedText:
    posting = found.posting
    facts = {fact: getattr(posting, fact) for fact in _FACTS}
    facts["company"] = posting.company or identity.find_company(posting.title)
    head = [posting.title, *(facts[fact] for fact in _SHOWN_FACTS)]
    # The body in its order, then the requirements that are not part of it.
    shown = {*found.description, *found.required}
    body = [block for block in posting.body if block in shown]
    parts = ["\n".join(filter(None, head)), join_blocks(body)]
    if apart := _new_blocks(found.required, body):
        parts.append(join_blocks([Block("Requirements"), *apart]))
    return ExtractedText(
        text="\n\n".join(parts),
        title=posting.title,
        media_type=HTML,
        metadata={
            "title": posting.title,
            **facts,
            "description": join_blocks(found.description),
            "requirements": join_blocks(found.required),
            "schema_type": SCHEMA_TYPE,
        },
    )
