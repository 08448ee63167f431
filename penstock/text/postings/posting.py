"""Job postings of web pages: found in JSON-LD, in embedded state or on the page, told in fields."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from penstock.documents import ExtractedText
from penstock.text.html.page import Page
from penstock.text.kinds import HTML
from penstock.text.postings.blocks import Block, bare_letters, join_blocks
from penstock.text.postings.closing import drop_closing, find_pay_range
from penstock.text.postings.fields import Posting
from penstock.text.postings.identity import PageIdentity, identify_page
from penstock.text.postings.linked import find_linked_posting
from penstock.text.postings.page import find_page_posting
from penstock.text.postings.requirements import split_blocks
from penstock.text.postings.runs import break_runs
from penstock.text.postings.state import find_state_posting

SCHEMA_TYPE = "JobPosting"
# Short values beside a posting's body (`Java, SQL`) repeat what its requirements say.
_TAGS_CHARS = 120
_FACTS = ("company", "location", "employment_type", "salary", "date_posted", "valid_through")
_SHOWN_FACTS = ("company", "location", "employment_type", "salary")
# Most postings have one of these words in their text or data, and few other pages do. Long words
# are found fastest, and this is looked for in every page there is.
_HINTS = ("JobPosting", "esponsibilit", "ualification", "equirement")


@dataclass(frozen=True, slots=True)
class _Told:
    """A posting with its body split."""

    posting: Posting
    told: tuple[Block, ...]
    asked: tuple[Block, ...]


def extract_posting(page: Page, name: str = "") -> ExtractedText | None:
    """The posting as fields and ordered text; None when the page is not about one job."""
    identity = identify_page(page, name)
    hiring = identity.has_job_address or identity.speaks_of_jobs
    if not hiring and not any(hint in page.source for hint in _HINTS):
        return None
    found = _find(page, identity)
    return _describe(found, identity) if found else None


def _find(page: Page, identity: PageIdentity) -> _Told | None:
    """The first source that tells the requirements apart, with the facts of all before it."""
    first: _Told | None = None
    for posting in _sources(page, identity):
        found = _split(posting)
        if first and found.asked:
            return replace(found, posting=_with_facts(first.posting, found.posting))
        if found.asked:
            return found
        first = first or (found if found.told else None)
    return first and _split(replace(first.posting, body=tuple(break_runs(first.posting.body))))


def _sources(page: Page, identity: PageIdentity) -> Iterator[Posting]:
    for find in (find_linked_posting, find_state_posting, find_page_posting):
        posting = find(page, identity)
        if posting:
            yield posting


def _with_facts(facts: Posting, body: Posting) -> Posting:
    known = {fact: getattr(facts, fact) or getattr(body, fact) for fact in _FACTS}
    return replace(body, title=facts.title, **known)


def _split(posting: Posting) -> _Told:
    body = drop_closing(posting.body)
    told, asked = split_blocks(body, headed=bool(posting.requirements))
    kept_apart = _new_blocks(posting.requirements, asked)
    if asked and sum(len(block.text) for block in kept_apart) < _TAGS_CHARS:
        kept_apart = []
    repeated = {block.text for block in kept_apart}
    told = [block for block in told if block.text not in repeated]
    salary = posting.salary or find_pay_range(posting.body)
    return _Told(replace(posting, salary=salary), tuple(told), (*asked, *kept_apart))


def _new_blocks(blocks: Sequence[Block], known: Sequence[Block]) -> list[Block]:
    letters = bare_letters(known)
    return [block for block in blocks if bare_letters([block]) not in letters]


def _describe(found: _Told, identity: PageIdentity) -> ExtractedText:
    posting = found.posting
    facts = {fact: getattr(posting, fact) for fact in _FACTS}
    facts["company"] = posting.company or identity.find_company(posting.title)
    sections = {"description": join_blocks(found.told), "requirements": join_blocks(found.asked)}
    head = [posting.title, *(facts[fact] for fact in _SHOWN_FACTS)]
    return ExtractedText(
        text="\n\n".join(["\n".join(filter(None, head)), *_reading_order(found)]),
        title=posting.title,
        media_type=HTML,
        metadata={"title": posting.title, **facts, **sections, "schema_type": SCHEMA_TYPE},
    )


def _reading_order(found: _Told) -> Iterator[str]:
    """The body as it stands, then what its source keeps apart."""
    shown = {*found.told, *found.asked}
    body = [block for block in found.posting.body if block in shown]
    yield join_blocks(body)
    apart = _new_blocks(found.asked, body)
    if apart:
        yield join_blocks([Block("Requirements"), *apart])
