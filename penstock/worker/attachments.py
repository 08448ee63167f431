"""Files that a program hands over: nodes whose bytes stay where they lie."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from penstock.crawl.localfile import path_of_uri
from penstock.store.database import Tx
from penstock.store.identifiers import new_node_id
from penstock.store.schema import nodes, texts

_SCHEME = "file"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file, and the text found in it; no text has been found as long as that is None."""

    id: int
    node_id: str
    filename: str
    uri: str
    mime_type: str | None
    title: str | None
    text: str | None
    metadata: Mapping[str, Any]

    @property
    def path(self) -> Path:
        return path_of_uri(self.uri)


def insert_attachment(
    tx: Tx, tenant_id: str, filename: str, path: Path, mime_type: str | None
) -> int:
    row: dict[str, Any] = {
        "id": new_node_id(),
        "tenant_id": tenant_id,
        "external_id": filename,
        "url": path.absolute().as_uri(),
        "media_type": mime_type,
        "metadata": {},
        "fields": {},
        "created_at": tx.now,
        "updated_at": tx.now,
    }
    number: int = tx.execute(sa.insert(nodes).values(row).returning(nodes.c.seq)).scalar_one()
    return number


def find_attachments(tx: Tx, tenant_id: str, ids: Collection[int]) -> dict[int, Attachment]:
    """Those of this tenant that exist, by id."""
    query = (
        sa.select(nodes, texts.c.body)
        .outerjoin(texts, texts.c.seq == nodes.c.seq)
        .where(nodes.c.tenant_id == tenant_id, nodes.c.seq.in_(ids))
        .where(nodes.c.source_id.is_(None), nodes.c.url.startswith(f"{_SCHEME}:"))
    )
    return {row.seq: _attachment(row) for row in tx.execute(query)}


def _attachment(row: sa.Row[Any]) -> Attachment:
    return Attachment(
        id=row.seq,
        node_id=row.id,
        filename=row.external_id,
        uri=row.url,
        mime_type=row.media_type,
        title=row.title,
        text=row.body,
        metadata=row.metadata,
    )
