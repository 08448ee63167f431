"""The passages of texts, as they are stored."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa

from penstock.documents import Passage
from penstock.store.bulk import BulkStatement
from penstock.store.database import Tx
from penstock.store.schema import passages

_c = passages.c


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
