"""What is searched for: the words, and the filters that every way of searching applies."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from itertools import islice
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from penstock.errors import UsageError
from penstock.store.database import Tx
from penstock.store.schema import nodes, sources

Way = Literal["text", "vector"]
Mode = Literal["hybrid", "text", "vector"]
# Marks around a hit inside a snippet. No document holds them: they are private-use characters.
HIT_START, HIT_END = "\ue000", "\ue001"

# What JSON writes as it is.
_PLAIN = re.compile(r"[ !#-.0-\[\]-~]+")
# The number that a text begins with.
_BEGINNING = r"^([0-9]{1,15}(?:\.[0-9]{1,15})?)"


@dataclass(frozen=True, slots=True)
class Filters:
    """A tenant's nodes, narrowed by the rest."""

    tenant_id: str
    source: str | None = None
    profile: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    """Extracted fields that equal a value, or lists that have it, in any case."""
    at_least: Mapping[str, float] = field(default_factory=dict)
    """Extracted numbers that are at least this; a range such as "5-7" counts by its beginning."""
    holding: Sequence[tuple[Sequence[str], str]] = ()
    """Extracted fields, and a text that one of them, or one value of a list, contains."""

    needs_review: bool | None = None
    """Only what needs review, or only what does not."""

    @property
    def narrow(self) -> bool:
        """Whether they let through less than the tenant's nodes."""
        more = (self.fields, self.at_least, self.holding)
        named = (self.source, self.profile, self.needs_review)
        return any(one is not None for one in named) or any(more)

    def conditions(self, tx: Tx) -> list[sa.ColumnElement[bool]]:
        found = [nodes.c.tenant_id == self.tenant_id, nodes.c.expired_at.is_(None)]
        if self.profile is not None:
            found.append(nodes.c.profile == self.profile)
        if self.needs_review is not None:
            flag = nodes.c.needs_review
            found.append(flag if self.needs_review else sa.not_(flag))
        if self.source is not None:
            named = sa.select(sources.c.id).where(
                sources.c.tenant_id == self.tenant_id, sources.c.name == self.source
            )
            found.append(nodes.c.source_id.in_(named))
        for name, value in self.fields.items():
            found += [*_may_hold(tx, [name], value), _has_value(tx, name, value)]
        for names, text in self.holding:
            part = f"%{_escaped(text)}%"
            held = sa.or_(*[_has_value(tx, name, part, like=True) for name in names])
            found += [*_may_hold(tx, names, text), held]
        is_at_least = _is_at_least_postgres if tx.is_postgres else _is_at_least_sqlite
        return found + [is_at_least(name, least) for name, least in self.at_least.items()]


@dataclass(frozen=True, slots=True)
class Match:
    """A node's place, from 1, and its score in one way of searching."""

    way: Way
    place: int
    score: float


@dataclass(frozen=True, slots=True)
class Found:
    """One node that matched."""

    seq: int
    score: float
    why: tuple[Match, ...] = ()
    position: int | None = None
    """Of the passage that speaks for it; None: no passage was compared."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One result, as it is shown."""

    id: str
    title: str
    url: str | None
    score: float
    snippet: str
    """Hits stand between HIT_START and HIT_END."""
    why: tuple[Match, ...]
    passage: Mapping[str, Any] | None = None
    """The part of the document that speaks for it: text, start, end, page, heading_path."""

    @property
    def place(self) -> str:
        """Page and headings of the passage, as people read them; empty if it has none."""
        passage = self.passage or {}
        page = f"page {passage['page']}" if passage.get("page") else ""
        return " · ".join(filter(None, [page, " › ".join(passage.get("heading_path", ()))]))

    def as_json(self) -> dict[str, object]:
        return {
            "id": self.id,
            "title": self.title,
            "url": self.url,
            "score": self.score,
            "snippet": self.snippet.replace(HIT_START, "<mark>").replace(HIT_END, "</mark>"),
            "why": [asdict(match) for match in self.why],
            "passage": self.passage,
        }


# How many are looked at first, for each that is wanted, and how many at once at most.
_FIRST_LOOK, _LONGEST_LOOK = 4, 5000
# Of so many nodes, each is ranked and compared, whatever the indexes say.
MOST_FEW = 2000


@dataclass(frozen=True, slots=True)
class Scope:
    """The nodes that are searched."""

    filters: Filters
    few: Sequence[int] | None
    """All that the filters let through; None when they are more than a few."""

    @classmethod
    def look(cls, tx: Tx, filters: Filters) -> "Scope":
        some = sa.select(nodes.c.seq).where(*filters.conditions(tx)).limit(MOST_FEW + 1)
        found = tx.execute(some).scalars().all()
        return cls(filters, found if len(found) <= MOST_FEW else None)

    def first_passing(self, tx: Tx, ranked: Iterable[Found], limit: int) -> list[Found]:
        """The best of these that the filters let through. Only as many are looked at as it
        takes."""
        passed: list[Found] = []
        rest, count = iter(ranked), _FIRST_LOOK * limit
        while len(passed) < limit and (looked_at := [*islice(rest, count)]):
            among = tx.among(nodes.c.seq, [one.seq for one in looked_at])
            right = sa.select(nodes.c.seq).where(among, *self.filters.conditions(tx))
            let_through = set(tx.execute(right).scalars())
            passed += [one for one in looked_at if one.seq in let_through]
            count = min(_FIRST_LOOK * count, _LONGEST_LOOK)
        return passed[:limit]


def _may_hold(tx: Tx, names: Sequence[str], text: str) -> list[sa.ColumnElement[bool]]:
    """A quick look at the JSON as it is written, before its values are taken apart."""
    if not _PLAIN.fullmatch(text):
        return []
    if not tx.is_postgres:
        return [sa.cast(nodes.c.fields, sa.Text()).contains(text, autoescape=True)]
    written = [sa.type_coerce(nodes.c.fields, JSONB)[name].astext for name in names]
    return [sa.or_(*[one.icontains(text, autoescape=True) for one in written])]


def _has_value(tx: Tx, name: str, value: str, *, like: bool = False) -> sa.ColumnElement[bool]:
    return (_has_value_postgres if tx.is_postgres else _has_value_sqlite)(name, value, like)


def _is_same(found: sa.ColumnElement[Any], value: str, like: bool) -> sa.ColumnElement[bool]:
    lower = sa.func.lower(found)
    return lower.like(value.lower(), escape="/") if like else lower == value.lower()


def _escaped(text: str) -> str:
    """For LIKE, with "/" as the escape character."""
    return text.replace("/", "//").replace("%", "/%").replace("_", "/_")


def _has_value_postgres(name: str, value: str, like: bool) -> sa.ColumnElement[bool]:
    found = sa.type_coerce(nodes.c.fields, JSONB)[name]
    as_list = sa.case(
        (sa.func.jsonb_typeof(found) == "array", found), else_=sa.func.jsonb_build_array(found)
    )
    values = sa.func.jsonb_array_elements_text(as_list).table_valued("value")
    same = _is_same(values.c.value, value, like)
    return sa.exists(sa.select(sa.literal(1)).select_from(values).where(same))


def _has_value_sqlite(name: str, value: str, like: bool) -> sa.ColumnElement[bool]:
    found = sa.func.json_each(nodes.c.fields).table_valued("key", "value", "type", name="found")
    as_list = sa.case(
        (found.c.type == "array", found.c.value),
        (found.c.type.in_(["true", "false"]), sa.func.json_array(found.c.type)),
        else_=sa.func.json_array(found.c.value),
    )
    one = sa.func.json_each(as_list).table_valued("value", name="one")
    same = sa.and_(found.c.key == name, _is_same(one.c.value, value, like))
    return sa.exists(sa.select(sa.literal(1)).select_from(found.join(one, sa.true())).where(same))


def _is_at_least_postgres(name: str, least: float) -> sa.ColumnElement[bool]:
    found = sa.type_coerce(nodes.c.fields, JSONB)[name]
    # Exact numbers: one in a document may be larger than any float.
    wanted = sa.literal(Decimal(repr(least)), sa.Numeric())
    kind = sa.func.jsonb_typeof(found)
    beginning = sa.func.substring(found.astext, _BEGINNING)
    # CASE checks the type before it casts.
    return sa.case(
        (kind == "number", sa.cast(found, sa.Numeric()) >= wanted),
        (kind == "string", sa.func.coalesce(sa.cast(beginning, sa.Numeric()) >= wanted, False)),
        else_=sa.false(),
    )


def _is_at_least_sqlite(name: str, least: float) -> sa.ColumnElement[bool]:
    found = sa.func.json_each(nodes.c.fields).table_valued("key", "value", "type", name="found")
    is_number = found.c.type.in_(["integer", "real"])
    is_range = sa.and_(found.c.type == "text", found.c.value.op("GLOB")("[0-9]*"))
    # SQLite's CAST reads a text as far as it is a number.
    number = sa.case((is_number, found.c.value), (is_range, sa.cast(found.c.value, sa.REAL())))
    enough = sa.and_(found.c.key == name, number >= sa.literal(least, sa.Float()))
    return sa.exists(sa.select(sa.literal(1)).select_from(found).where(enough))


def parse_at_least(given: Iterable[str]) -> dict[str, float]:
    """From arguments of the form name=number, each name once."""
    found: dict[str, float] = {}
    for one in given:
        name, _, number = one.partition("=")
        try:
            least = float(number)
        except ValueError:
            least = math.nan
        if not name or not math.isfinite(least):
            raise UsageError(f"at least {one}: write it as name=number")
        if found.setdefault(name, least) != least:
            raise UsageError(f"at least {name} is asked for twice: name each field once")
    return found
