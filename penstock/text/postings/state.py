"""Job postings in the JSON state a page carries for its own scripts, whatever its shape."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from penstock.text.characters import clean_line
from penstock.text.html.page import Page
from penstock.text.postings.blocks import Block, read_blocks
from penstock.text.postings.embedded_json import find_json, load_json
from penstock.text.postings.fields import Posting, join_names, read_line, read_places, read_salary
from penstock.text.postings.identity import PageIdentity
from penstock.text.postings.requirements import split_blocks, split_parts
from penstock.text.postings.sections import (
    bare_key,
    drop_repeats,
    is_asking_key,
    read_sections,
    read_title,
)

_MOST_VALUES = 200_000
_MOST_NESTED = 20
_NESTED_OPENINGS = ('{"', "[{", '["', "[[")
_LEAST_BODY = 200
_LEAST_PART = 80
_TITLE_CHARS = 200

_WANTED = (
    *("ualification", "equirement", "esponsibilit", "requisition", "employmentType", "department"),
    *("jobTitle", "jobId", "jobDescription", "job_", "posting", "Posting"),
)
# Enough where the page itself speaks of jobs.
_WANTED_THERE = (*_WANTED, "itle")
_FACTS = {
    "company": re.compile(r"^(company|hiringorganization|organi[sz]ation|employer)(name)?$"),
    "location": re.compile(
        r"^(job|primary|all|normalized|full|posting|jobpost)?(locations?|city)(name|s?text|info|list)?$"
    ),
    "employment_type": re.compile(
        r"^employmenttype|^typeofemployment|^commitment$|^(job|time)type$"
    ),
    "salary": re.compile(r"^(base)?(salary|payrange|salaryrange|compensation)$"),
    "date_posted": re.compile(r"^(date(posted|published)|(posted|published)(at|on|date))$"),
    "valid_through": re.compile(r"^(validthrough|applicationdeadline|clos(e|ing)date)$"),
}
# People and articles have job titles and departments too; these keys only hint at a job.
_JOB_KEY = re.compile(
    r"^(job|posting|position|vacancy)(title|family|type|category|url|level)|department|^teams?$"
    r"|^hiring|^jobad"
)
_SURE_KEY = re.compile(
    r"^(job|posting|requisition|req|vacancy)(id|code|number)$|requisition|^applyurl|^applicationurl"
    r"|^employmenttype|^commitment$"
)
_ID_KEY = re.compile(
    r"^(job|posting|position|requisition|req|external|display)?(id|slug|code|number)$"
)


@dataclass(frozen=True, slots=True)
class _Candidate:
    posting: Posting
    located: bool
    """Its id is in the page's address."""
    named: bool
    """The page is called like it."""

    @property
    def weight(self) -> tuple[bool, int, int]:
        posting = self.posting
        named = len(posting.title) if self.named else 0
        return self.located, named, _size((*posting.body, *posting.requirements))


def find_state_posting(page: Page, identity: PageIdentity) -> Posting | None:
    """The posting the page is about; None when its state holds none, or many and none is it."""
    hiring = identity.has_job_address or identity.speaks_of_jobs
    words = _WANTED_THERE if hiring else _WANTED
    roots = find_json(page, lambda text: any(word in text for word in words))
    found = [candidate for root in roots for candidate in _candidates(root, identity)]
    meant = [candidate for candidate in found if candidate.located or candidate.named]
    if not meant and len({candidate.posting.title for candidate in found}) > 1:
        return None
    best = max(meant or found, key=lambda candidate: candidate.weight, default=None)
    return best.posting if best else None


def _candidates(root: Any, identity: PageIdentity) -> Iterator[_Candidate]:
    search = _Search(identity, root if isinstance(root, dict) else {})
    nested = _MOST_NESTED
    stack = [root]
    for _ in range(_MOST_VALUES):
        if not stack:
            return
        value = stack.pop()
        if isinstance(value, dict):
            yield from search.read_object(value)
            stack.extend(value.values())
        elif isinstance(value, list):
            yield from _read_array(value, identity)
            stack.extend(value)
        elif isinstance(value, str) and value[:2] in _NESTED_OPENINGS and nested:
            nested -= 1
            stack.extend(load_json(value))


class _Search:
    """Reads objects, but no more than two jobs that the page is not called after."""

    def __init__(self, identity: PageIdentity, rows: Mapping[str, Any]) -> None:
        self._identity = identity
        self._rows = rows
        self._strangers: set[str] = set()

    def read_object(self, node: Mapping[str, Any]) -> Iterator[_Candidate]:
        title = read_title(node)
        if not title or len(title) > _TITLE_CHARS or not _hints_at_job(tuple(node)):
            return
        title = read_line(title)
        keys = {bare_key(key): value for key, value in node.items()}
        located, named = _is_located(keys, self._identity), self._identity.names(title)
        if not located and not named and len(self._strangers) > 1:
            return
        body, requirements = read_sections(node, self._rows)
        if _size((*body, *requirements)) >= _LEAST_BODY and _is_job(keys, body, requirements):
            self._strangers.add(title)
            posting = Posting(title, body, requirements, **_read_facts(keys))
            yield _Candidate(posting, located, named)


@lru_cache(maxsize=1024)
def _hints_at_job(keys: tuple[str, ...]) -> bool:
    """Objects of one kind have the same keys, and a page's state has thousands of few kinds."""
    facts = (_JOB_KEY, _SURE_KEY, _FACTS["location"], _FACTS["employment_type"])
    names = [bare_key(key) for key in keys]
    return any(is_asking_key(name) or any(words.search(name) for words in facts) for name in names)


def _size(blocks: tuple[Block, ...]) -> int:
    return sum(len(block.text) for block in blocks)


def _is_job(
    keys: Mapping[str, Any], body: tuple[Block, ...], requirements: tuple[Block, ...]
) -> bool:
    """Articles and events have titles and texts too; only jobs ask of the applicant."""
    if requirements or any(_SURE_KEY.search(key) for key in keys):
        return True
    return bool(split_blocks(body, headed=True)[1])


def _is_located(keys: Mapping[str, Any], identity: PageIdentity) -> bool:
    ids = (str(value) for key, value in keys.items() if _ID_KEY.search(key))
    return any(map(identity.has_address_with, ids))


def _read_facts(keys: Mapping[str, Any]) -> dict[str, str]:
    readers = {"location": read_places, "salary": read_salary}
    facts = {}
    for fact, words in _FACTS.items():
        values = (value for key, value in keys.items() if value and words.search(key))
        texts = (readers.get(fact, join_names)(value) for value in values)
        facts[fact] = next((text for text in texts if 0 < len(text) <= _TITLE_CHARS), "")
    return facts


def _read_array(values: list[Any], identity: PageIdentity) -> Iterator[_Candidate]:
    """Without keys, a job is a list with the page's title in it, and the texts beside it."""
    texts = [text for value in values for text in _lone_texts(value)]
    parts = [text for text in texts if len(text) >= _LEAST_PART and "<" in text]
    if len(parts) < 2:
        return
    short = (text for text in values if isinstance(text, str) and 3 < len(text) <= _TITLE_CHARS)
    title = next((text for text in short if identity.names(text)), "")
    told, asked = split_parts(drop_repeats([tuple(read_blocks(part)) for part in parts]))
    if title and asked:
        yield _Candidate(Posting(clean_line(title), told, asked), located=False, named=True)


def _lone_texts(value: Any) -> list[str]:
    if isinstance(value, list) and len(value) <= 2:
        return [text for text in value if isinstance(text, str)]
    return [value] if isinstance(value, str) else []
