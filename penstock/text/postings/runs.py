"""Postings that lost their lines: everything in one paragraph, with the headings inside it."""

import re
from collections.abc import Iterator, Sequence

from penstock.text.postings.blocks import LOOKS_LIKE_HEADING, Block
from penstock.text.postings.words import CLOSING

_RUN_CHARS = 500

# Capitals tell a heading from the same words in a sentence.
_KINDS = (
    r"(?:(?:Minimum|Basic|Preferred|Required|Desired|Key|Additional|Job|Your|Core|Essential|Other"
    r"|Technical|Professional|Primary|General) ){0,2}"
    r"(?:Qualifications|Requirements|Responsibilities|Skills|Duties|Experience)"
    r"(?: (?:and|&) (?:Qualifications|Requirements|Responsibilities|Skills|Experience|Education))?"
)
_PHRASES = (
    r"Who You Are|What (?:You|We)(?:[’']ll|[’']re| Will| Are)?"
    r" (?:Do|Bring|Need|Have|Offer|Looking For)"
    r"|About (?:You|Us|(?:the|The) (?:Role|Job|Team|Position|Company))|Nice[ -][Tt]o[ -][Hh]aves?"
    r"|Must[ -][Hh]aves?|Benefits|Ihr Profil|Dein Profil|(?:Ihre|Deine) Aufgaben|Wir bieten"
    r"|Profil recherché|Vos missions|Requisitos|Funciones|Ofrecemos"
)
_HEADING = re.compile(rf"(?<!\w)({_KINDS}|{_PHRASES})(?:\s*:\s*|\s+(?=[A-Z0-9•*-]))")
_ONE_WORD = re.compile(r"\w+")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


def break_runs(blocks: Sequence[Block]) -> list[Block]:
    """The blocks with long paragraphs broken at the headings and closing statements in them."""
    return [part for block in blocks for part in _break(block)]


def _break(block: Block) -> Iterator[Block]:
    if len(block.text) < _RUN_CHARS or block.item:
        yield block
        return
    place = 0
    for heading in filter(_stands_out, _HEADING.finditer(block.text)):
        yield from _paragraphs(block.text[place : heading.start()])
        yield Block(heading[1], LOOKS_LIKE_HEADING)
        place = heading.end()
    yield from _paragraphs(block.text[place:])


def _stands_out(heading: re.Match[str]) -> bool:
    """A single word is also how a sentence may begin; a colon makes sure it does not."""
    return ":" in heading[0] or not _ONE_WORD.fullmatch(heading[1])


def _paragraphs(text: str) -> Iterator[Block]:
    sentences = _SENTENCE.split(text.strip())
    closing = (place for place, words in enumerate(sentences) if CLOSING.search(words))
    first = next(closing, len(sentences))
    pieces = (" ".join(sentences[:first]), " ".join(sentences[first:]))
    return (Block(piece) for piece in pieces if piece)
