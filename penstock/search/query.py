"""What is searched for: the words, and the filters that every way of searching applies."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from penstock.store.database import Tx
from penstock.store.schema import nodes, sources

Mode = Literal["hybrid", "text", "vector"]
# Marks around a hit inside a snippet. No document holds them: they are private-use characters.
HIT_START, HIT_END = "\ue000", "\ue001"

# What people type has a few words; a whole page pasted in would be a statement without end.
MOST_TERMS = 64
_TERM = re.compile(r'"([^"]+)"|(\S+)')


@dataclass(frozen=True, slots=True)
class Filters:
    """A tenant sees only its own; the rest narrows."""

    tenant_id: str
    source: str | None = None
    profile: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    """Extracted fields: equal to this, or, for lists, holding this; case does not matter."""

    def conditions(self, tx: Tx) -> list[sa.ColumnElement[bool]]:
        found = [nodes.c.tenant_id == self.tenant_id, nodes.c.expired_at.is_(None)]
        if self.profile is not None:
            found.append(nodes.c.profile == self.profile)
        if self.source is not None:
            named = sa.select(sources.c.id).where(
                sources.c.tenant_id == self.tenant_id, sources.c.name == self.source
            )
            found.append(nodes.c.source_id.in_(named))
        return found + [_has_value(tx, name, value) for name, value in self.fields.items()]


@dataclass(frozen=True, slots=True)
class Found:
    """One node that matched, in one way of searching."""

    seq: int
    score: float
    snippet: str | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """One result, as it is shown."""

    id: str
    title: str
    url: str | None
    score: float
    snippet: str
    """Hits stand between HIT_START and HIT_END."""

    def as_json(self) -> dict[str, object]:
        return {
            "id": self.id,
            "title": self.title,
            "url": self.url,
            "score": self.score,
            "snippet": self.snippet.replace(HIT_START, "<mark>").replace(HIT_END, "</mark>"),
        }


def _has_value(tx: Tx, name: str, value: str) -> sa.ColumnElement[bool]:
    postgres = tx.connection.dialect.name == "postgresql"
    return (_has_value_postgres if postgres else _has_value_sqlite)(name, value)


def _has_value_postgres(name: str, value: str) -> sa.ColumnElement[bool]:
    found = sa.type_coerce(nodes.c.fields, JSONB)[name]
    as_list = sa.case(
        (sa.func.jsonb_typeof(found) == "array", found), else_=sa.func.jsonb_build_array(found)
    )
    values = sa.func.jsonb_array_elements_text(as_list).table_valued("value")
    same = sa.func.lower(values.c.value) == value.lower()
    return sa.exists(sa.select(sa.literal(1)).select_from(values).where(same))


def _has_value_sqlite(name: str, value: str) -> sa.ColumnElement[bool]:
    found = sa.func.json_each(nodes.c.fields).table_valued("key", "value", "type", name="found")
    as_list = sa.case(
        (found.c.type == "array", found.c.value),
        (found.c.type.in_(["true", "false"]), sa.func.json_array(found.c.type)),
        else_=sa.func.json_array(found.c.value),
    )
    one = sa.func.json_each(as_list).table_valued("value", name="one")
    same = sa.and_(found.c.key == name, sa.func.lower(one.c.value) == value.lower())
    return sa.exists(sa.select(sa.literal(1)).select_from(found.join(one, sa.true())).where(same))


def terms_of(query: str) -> list[str]:
    """Words and quoted phrases, without anything that is syntax to a search engine."""
    parts = [phrase or word for phrase, word in _TERM.findall(query)]
    cleaned = [" ".join(re.findall(r"\w+", part)) for part in parts]
    return list(dict.fromkeys(term for term in cleaned if term))[:MOST_TERMS]
