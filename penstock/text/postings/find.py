"""The job posting of a web page: from structured data, embedded state, or the page's text."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from penstock.documents import ExtractedText
from penstock.text.html import PageText
from penstock.text.media_types import HTML
from penstock.text.postings.blocks import Block, Blocks, join_blocks
from penstock.text.postings.company import find_company
from penstock.text.postings.fields import (
    PageIdentity,
    Posting,
    distinct,
    identify_page,
    join_fields,
    join_names,
    read_line,
    read_names,
    read_places,
    read_salary,
    read_value,
)
from penstock.text.postings.headings import MONEY_RANGE, Kind, words_for
from penstock.text.postings.json_state import find_state_posting
from penstock.text.postings.region import find_page_posting, resembles_posting
from penstock.text.postings.sections import Split, split_blocks

SCHEMA_TYPE = "JobPosting"
_DESCRIBING = {
    "description": Kind.UNKNOWN,
    "responsibilities": Kind.ROLE,
    "qualifications": Kind.REQUIRED,
    "experienceRequirements": Kind.REQUIRED,
    "educationRequirements": Kind.REQUIRED,
    "jobBenefits": Kind.OFFER,
    "employerOverview": Kind.COMPANY,
}
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
    fields = [(kind, read_value(node.get(key))) for key, kind in _DESCRIBING.items()]
    if not any(blocks for kind, blocks in fields if kind is Kind.REQUIRED):
        skills = read_value(node.get("skills"))
        fields.append((Kind.REQUIRED, skills))
    places = [read_places(node.get("jobLocation"))]
    if "TELECOMMUTE" in read_names(node.get("jobLocationType")):
        places.append(f"Remote {join_names(node.get('applicantLocationRequirements'))}".strip())
    return Posting(
        title=read_line(node.get("title") or node.get("name")),
        body=join_fields(fields),
        company=join_names(node.get("hiringOrganization")),
        location="; ".join(distinct(places)),
        employment_type=join_names(node.get("employmentType")),
        salary=read_salary(node.get("baseSalary") or node.get("estimatedSalary")),
        date_posted=join_names(node.get("datePosted")),
        valid_through=join_names(node.get("validThrough")),
    )


_FACTS = ("company", "location", "employment_type", "salary", "date_posted", "valid_through")
_SHOWN_FACTS = ("company", "location", "employment_type", "salary")
# From how much more text on a later source is taken, if it holds this share of the first one's.
_FULLER = 1.5
_HELD_SHARE = 0.7
# Blocks longer than this on average have lost their lines.
_LOST_LINES = 600
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class _Found:
    """A posting with its parts."""

    posting: Posting
    split: Split

    @property
    def words(self) -> Counter[str]:
        return Counter(_WORD.findall(join_blocks(self.split.text).casefold()))

    @property
    def lost_lines(self) -> bool:
        blocks = self.split.text
        return sum(len(block.text) for block in blocks) > _LOST_LINES * len(blocks)


def extract_posting(page: PageText, name: str = "") -> ExtractedText | None:
    """The posting as fields and ordered text; None when the page is not about one job."""
    identity = identify_page(page, name)
    marked = identity.is_hiring or SCHEMA_TYPE in page.source
    if not marked and not resembles_posting(page):
        return None
    found = _find(page, identity)
    return _describe(found, page, identity) if found else None


def _find(page: PageText, identity: PageIdentity) -> _Found | None:
    """The first posting that is whole, with the facts of the first one found."""
    best: _Found | None = None
    for find in (find_linked_posting, find_state_posting, find_page_posting):
        posting = find(page, identity)
        found = _Found(posting, split_blocks(posting.body)) if posting else None
        if found and best and _is_fuller(found, best):
            facts = {
                fact: getattr(best.posting, fact) or getattr(found.posting, fact) for fact in _FACTS
            }
            best = replace(found, posting=replace(found.posting, title=best.posting.title, **facts))
        elif found and not best and found.split.text:
            best = found
    return best


def _is_fuller(found: _Found, first: _Found) -> bool:
    """Whether the other is a teaser of this one, lacks its lines, or what is asked."""
    known, words = first.words, found.words
    if (known & words).total() < _HELD_SHARE * known.total():
        return bool(found.split.requirements) and not first.split.requirements
    if found.lost_lines:
        return False
    fuller = words.total() >= _FULLER * known.total()
    parted = bool(found.split.requirements) and not first.split.requirements
    return fuller or parted or first.lost_lines


def _describe(found: _Found, page: PageText, identity: PageIdentity) -> ExtractedText:
    posting, split = found.posting, found.split
    facts = {fact: getattr(posting, fact) for fact in _FACTS}
    facts["company"] = posting.company or find_company(page.tree, identity, posting.title)
    facts["salary"] = posting.salary or _find_pay_range(posting)
    head = [posting.title, *(facts[fact] for fact in _SHOWN_FACTS)]
    return ExtractedText(
        text="\n".join(filter(None, head)) + f"\n\n{join_blocks(_headed(split.text))}",
        title=posting.title,
        media_type=HTML,
        metadata={
            "title": posting.title,
            **facts,
            "description": join_blocks(split.description),
            "requirements": join_blocks(split.requirements),
            "schema_type": SCHEMA_TYPE,
        },
    )


def _headed(blocks: Blocks) -> Iterator[Block]:
    """The blocks with a heading above a field of requirements that has none."""
    kind = Kind.UNKNOWN
    for block in blocks:
        if block.kind is Kind.REQUIRED is not kind and not block.rank:
            yield Block("Requirements")
        kind = block.kind
        yield block


def _find_pay_range(posting: Posting) -> str:
    """The amounts in the first line that states a pay range."""
    lines = (block.text for block in posting.body if words_for("pay").search(block.text))
    return next((found[0].strip() for line in lines if (found := MONEY_RANGE.search(line))), "")
