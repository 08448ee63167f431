"""Job postings described by JSON-LD (https://schema.org/JobPosting) inside a page."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.text.html.page import Page
from penstock.text.postings.fields import (
    Posting,
    distinct,
    join_names,
    read_line,
    read_names,
    read_places,
    read_salary,
    read_value,
)
from penstock.text.postings.identity import PageIdentity

_REQUIREMENTS = ("qualifications", "experienceRequirements", "educationRequirements", "skills")
_MOST_VALUES = 50_000


def find_linked_posting(page: Page, identity: PageIdentity) -> Posting | None:
    """The one posting the page is about; None when there is none, or many and none is it."""
    postings = [posting for node in _nodes(page) if (posting := _read_posting(node)).title]
    if len({posting.title for posting in postings}) > 1:
        postings = [posting for posting in postings if identity.names(posting.title)]
    return max(postings, key=lambda posting: len(posting.body), default=None)


def _nodes(page: Page) -> Iterator[Mapping[str, Any]]:
    if "JobPosting" not in page.source:
        return
    for script in page.tree.xpath("//script[contains(@type, 'ld+json')]"):
        try:
            yield from _find_nodes(json.loads(_bare_json(script.text or ""), strict=False))
        except (ValueError, RecursionError):
            continue


def _bare_json(script: str) -> str:
    """Some sites wrap the script in comment or CDATA marks, for browsers long gone."""
    return re.sub(r"^\s*(/\*|//|<!--|<!\[CDATA\[|\*/)+|(/\*|//|-->|\]\]>|\*/|;)+\s*$", "", script)


def _find_nodes(root: Any) -> Iterator[Mapping[str, Any]]:
    stack = [root]
    for _ in range(_MOST_VALUES):
        if not stack:
            return
        node = stack.pop()
        if isinstance(node, list):
            stack.extend(reversed(node))
        elif isinstance(node, dict) and "JobPosting" in _kinds(node):
            yield node
        elif isinstance(node, dict):
            stack.extend(value for value in node.values() if isinstance(value, dict | list))


def _kinds(node: Mapping[str, Any]) -> list[Any]:
    kinds = node.get("@type")
    return kinds if isinstance(kinds, list) else [kinds]


def _read_posting(node: Mapping[str, Any]) -> Posting:
    told = [*read_value(node.get("description"))]
    known = {block.text for block in told}
    tasks = [block for block in read_value(node.get("responsibilities")) if block.text not in known]
    return Posting(
        title=read_line(node.get("title") or node.get("name")),
        body=(*told, *tasks),
        requirements=tuple(block for key in _REQUIREMENTS for block in read_value(node.get(key))),
        company=join_names(node.get("hiringOrganization")),
        location=_location(node),
        employment_type=join_names(node.get("employmentType")),
        salary=read_salary(node.get("baseSalary") or node.get("estimatedSalary")),
        date_posted=join_names(node.get("datePosted")),
        valid_through=join_names(node.get("validThrough")),
    )


def _location(node: Mapping[str, Any]) -> str:
    found = [read_places(node.get("jobLocation"))]
    if "TELECOMMUTE" in read_names(node.get("jobLocationType")):
        found.append(f"Remote {join_names(node.get('applicantLocationRequirements'))}".strip())
    return "; ".join(distinct(found))
