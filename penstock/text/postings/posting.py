"""Job postings described by JSON-LD (https://schema.org/JobPosting) inside a page."""

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from penstock.documents import ExtractedText
from penstock.text.characters import clean_line
from penstock.text.html import Page, visible_text
from penstock.text.kinds import HTML
from penstock.text.requirements import split_requirements

SCHEMA_TYPE = "JobPosting"
_REQUIREMENTS = (
    "qualifications",
    "experienceRequirements",
    "educationRequirements",
    "skills",
)
_JOB_ADDRESS = re.compile(r"(?<![a-z])(jobs?|careers?|positions?|vacanc\w+|openings?|postings?)\b")
_TAG = re.compile(r"<[a-zA-Z/][^<>]*>")
_ESCAPED_TAG = re.compile(r"&lt;/?[a-zA-Z]")


def extract_posting(page: Page) -> ExtractedText | None:
    """The posting as fields and ordered text; None when the page describes no job."""
    posting = next(_postings(page), None)
    fields = _posting_fields(posting) if posting else {}
    if not fields.get("title") or not fields.get("description"):
        return None
    return ExtractedText(
        text=_posting_text(fields),
        title=fields["title"],
        media_type=HTML,
        metadata={**_with_requirements(fields), "schema_type": SCHEMA_TYPE},
    )


def describe_posting(extracted: ExtractedText, page: Page, name: str) -> ExtractedText:
    """The fields that can be told from the plain page of a job, when its address says it is one."""
    if not _JOB_ADDRESS.search(name):
        return extracted
    description, requirements = split_requirements(extracted.text)
    if not requirements:
        return extracted
    company = page.tree.xpath("string(//meta[@property='og:site_name']/@content)")
    fields = {"title": extracted.title, "company": clean_line(company)}
    parts = {"description": description, "requirements": requirements}
    found = {**fields, **parts, "schema_type": SCHEMA_TYPE}
    return replace(extracted, metadata={**extracted.metadata, **found})


def _postings(page: Page) -> Iterator[Mapping[str, Any]]:
    if "JobPosting" not in page.source:
        return
    for script in page.tree.xpath("//script[contains(@type, 'ld+json')]"):
        try:
            yield from _find_postings(json.loads(_bare_json(script.text or ""), strict=False))
        except (ValueError, RecursionError):
            continue


def _bare_json(script: str) -> str:
    """Some sites wrap the script in comment or CDATA marks, for browsers long gone."""
    return re.sub(r"^\s*(/\*|//|<!--|<!\[CDATA\[|\*/)+|(/\*|//|-->|\]\]>|\*/|;)+\s*$", "", script)


def _find_postings(node: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(node, list):
        for item in node:
            yield from _find_postings(item)
    elif isinstance(node, dict):
        kinds = node.get("@type")
        if "JobPosting" in (kinds if isinstance(kinds, list) else [kinds]):
            yield node
        else:
            yield from _find_postings([v for v in node.values() if isinstance(v, dict | list)])


def _posting_fields(posting: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "title": clean_line(_plain(posting.get("title") or posting.get("name"))),
        "company": _name(posting.get("hiringOrganization")),
        "location": _location(posting),
        "employment_type": ", ".join(_strings(posting.get("employmentType"))),
        "salary": _salary(posting.get("baseSalary") or posting.get("estimatedSalary")),
        "date_posted": _name(posting.get("datePosted")),
        "valid_through": _name(posting.get("validThrough")),
        "description": _plain(posting.get("description")),
        "responsibilities": _plain(posting.get("responsibilities")),
        "requirements": "\n".join(filter(None, (_plain(posting.get(k)) for k in _REQUIREMENTS))),
    }


def _posting_text(fields: Mapping[str, Any]) -> str:
    facts = ("company", "location", "employment_type", "salary")
    head = [fields["title"], *(fields[fact] for fact in facts)]
    sections = ["\n".join(filter(None, head)), fields["description"]]
    sections += (
        f"{name.capitalize()}\n{fields[name]}"
        for name in ("responsibilities", "requirements")
        if fields[name] and fields[name] not in fields["description"]
    )
    return "\n\n".join(sections)


def _with_requirements(fields: dict[str, Any]) -> dict[str, Any]:
    if fields["requirements"]:
        return fields
    description, requirements = split_requirements(fields["description"])
    return {**fields, "description": description, "requirements": requirements}


def _plain(value: Any) -> str:
    """Readable text of a value that may be HTML, once or twice escaped, or an object."""
    if isinstance(value, list):
        return "\n".join(filter(None, map(_plain, value)))
    if isinstance(value, Mapping):
        return _plain(value.get("description") or value.get("name") or value.get("value"))
    text = "" if value is None else str(value)
    if _ESCAPED_TAG.search(text) and not _TAG.search(text):
        text = html.unescape(text)
    return visible_text(text) if _TAG.search(text) else html.unescape(text).strip()


def _name(value: Any) -> str:
    return ", ".join(_strings(value))


def _strings(value: Any) -> list[str]:
    """The names in a value that may be a string, an object with a name, or a list of them."""
    if isinstance(value, list):
        return _distinct(name for item in value for name in _strings(item))
    if isinstance(value, Mapping):
        return _strings(value.get("name") or value.get("legalName"))
    return _distinct([clean_line(html.unescape(str(value)))]) if value is not None else []


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(filter(None, names)))


def _location(posting: Mapping[str, Any]) -> str:
    places = posting.get("jobLocation")
    found = [_place(place) for place in (places if isinstance(places, list) else [places])]
    if "TELECOMMUTE" in _strings(posting.get("jobLocationType")):
        found.append(f"Remote {_name(posting.get('applicantLocationRequirements'))}".strip())
    return "; ".join(_distinct(found))


def _place(place: Any) -> str:
    if not isinstance(place, Mapping):
        return _name(place)
    address = place.get("address")
    if not isinstance(address, Mapping):
        return _name(address) or _name(place)
    parts = ("addressLocality", "addressRegion", "addressCountry")
    names = (name for part in parts for name in _name(address.get(part)).split(","))
    return ", ".join(_distinct(map(str.strip, names))) or _name(place)


def _salary(salary: Any) -> str:
    if not isinstance(salary, Mapping):
        return _name(salary)
    value = salary.get("value", salary)
    amounts = value if isinstance(value, Mapping) else {"value": value}
    bounds = [amounts.get("minValue"), amounts.get("maxValue")]
    figures = _distinct(str(bound) for bound in bounds if bound is not None)
    amount = "–".join(figures) or _name(amounts.get("value"))
    unit = _name(amounts.get("unitText") or salary.get("unitText")).lower()
    pieces = (
        amount,
        _name(salary.get("currency") or amounts.get("currency")),
        unit and f"/ {unit}",
    )
    return " ".join(filter(None, pieces)) if amount else ""
