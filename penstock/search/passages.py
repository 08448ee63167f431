"""The passages of texts: stored, read, and chosen to be shown for what was found."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from penstock.documents import Passage
from penstock.search.query import Found
from penstock.store.bulk import BulkStatement
from penstock.store.database import Tx
from penstock.store.schema import passages, texts

_c = passages.c
# Of a text that is yet to be cut, its beginning is shown.
_MOST_SHOWN = 2000
# Longer words are looked for without their ending.
_ENDING, _WHOLE = 2, 5


def store_passages(tx: Tx, cut: Mapping[int, Sequence[Passage]]) -> None:
    """Replace the passages of these texts. One that is not cut takes no row."""
    if not cut:
        return
    tx.execute(sa.delete(passages).where(tx.among(_c.seq, cut)))
    rows = [
        {
            "seq": seq,
            "position": position,
            "start": one.start,
            "end": one.end,
            "page": one.page,
            "heading": [*one.heading] or None,
        }
        for seq, found in cut.items()
        if len(found) > 1
        for position, one in enumerate(found)
    ]
    _INSERT.execute(tx, rows)


def _build_insert(tx: Tx) -> sa.Insert:
    return tx.insert(passages)


_INSERT = BulkStatement(_build_insert)


def read_passages(tx: Tx, seqs: Collection[int]) -> dict[int, list[Passage]]:
    """The passages of those of these texts that are cut, in order."""
    found: defaultdict[int, list[Passage]] = defaultdict(list)
    if seqs:
        query = sa.select(passages).where(tx.among(_c.seq, seqs)).order_by(_c.seq, _c.position)
        for seq, _, start, end, page, heading in tx.execute(query):
            found[seq].append(Passage(start, end, page, tuple(heading or ())))
    return found


@dataclass(frozen=True, slots=True)
class ShownPassage:
    """A passage with its text, as a hit shows it."""

    text: str
    start: int
    end: int
    page: int | None
    heading_path: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "start": self.start,
            "end": self.end,
            "page": self.page,
            "heading_path": [*self.heading_path],
        }


def show_passages(
    tx: Tx, found: Sequence[Found], terms: Sequence[str] = ()
) -> dict[int, ShownPassage]:
    """The passage that speaks for each of these, by the `seq` of its node: the one with most of the
    words, and of several the one that is nearest by meaning."""
    seqs = [one.seq for one in found]
    cut = read_passages(tx, seqs)
    read = sa.select(texts.c.seq, texts.c.body).where(tx.among(texts.c.seq, seqs))
    bodies = {row.seq: row.body for row in tx.execute(read)}
    pattern = _any_of(terms)
    shown: dict[int, ShownPassage] = {}
    for one in found:
        body = bodies.get(one.seq, "")
        own = cut.get(one.seq) or [Passage(0, min(len(body), _MOST_SHOWN))]
        worded = pattern if any(match.way == "text" for match in one.why) else None
        start, end, page, heading = _choose(body, own, one.position, worded)
        shown[one.seq] = ShownPassage(body[start:end], start, end, page, heading)
    return shown


def _choose(
    body: str, own: Sequence[Passage], nearest: int | None, pattern: re.Pattern[str] | None
) -> Passage:
    if len(own) == 1:
        return own[0]
    words: defaultdict[int, set[int | None]] = defaultdict(set)
    if pattern is not None:
        starts = [one.start for one in own]
        for match in pattern.finditer(body):
            words[bisect_right(starts, match.start()) - 1].add(match.lastindex)
    places = range(len(own))
    return own[max(places, key=lambda place: (len(words[place]), place == nearest, -place))]


def _any_of(terms: Sequence[str]) -> re.Pattern[str] | None:
    """These words and phrases, also with other endings, a group for each."""
    stems = [term[:-_ENDING] if len(term) > _WHOLE else term for term in terms]
    groups = "|".join(f"({re.escape(stem)})" for stem in stems)
    return re.compile(rf"\b(?:{groups})", re.IGNORECASE) if stems else None
