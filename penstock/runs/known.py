"""What the store already knows about a source's documents."""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from penstock.crawl.fetch import Marks
from penstock.crawl.simhash import from_signed
from penstock.documents import Stage
from penstock.store.database import Tx
from penstock.store.schema import nodes


@dataclass(frozen=True, slots=True)
class KnownNode:
    """The committed marks of a document and how far its processing has come."""

    id: str
    marks: Marks
    profile: str | None
    extraction_version: str | None
    extraction_status: str | None
    embedding_identity: str | None
    embedding_status: str | None
    expired: bool


@dataclass(frozen=True, slots=True)
class Current:
    """What a document must have been processed with to count as up to date."""

    extraction_version: str
    profile: str | None
    embedding_identity: str

    def missing_stage(self, node: KnownNode) -> Stage | None:
        """The first stage an unchanged document still needs, if any."""
        other_profile = self.profile is not None and self.profile != node.profile
        extracted = node.extraction_status in ("ready", "skipped")
        if not extracted or node.extraction_version != self.extraction_version or other_profile:
            return Stage.EXTRACT
        if node.embedding_status == "skipped":
            return None
        embedded = node.embedding_status == "ready"
        current = embedded and node.embedding_identity == self.embedding_identity
        return None if current else Stage.EMBED


def find_known(tx: Tx, source_id: int, external_ids: Sequence[str]) -> dict[str, KnownNode]:
    """Known documents among these, by external id."""
    query = sa.select(nodes).where(
        nodes.c.source_id == source_id, nodes.c.external_id.in_(external_ids)
    )
    return {row.external_id: _known(row) for row in tx.execute(query)}


def _known(row: sa.Row[tuple[object, ...]]) -> KnownNode:
    return KnownNode(
        id=row.id,
        marks=Marks(
            etag=row.etag,
            last_modified=row.last_modified,
            content_hash=row.content_hash,
            simhash=None if row.simhash is None else from_signed(row.simhash),
        ),
        profile=row.profile,
        extraction_version=row.extraction_version,
        extraction_status=row.extraction_status,
        embedding_identity=row.embedding_identity,
        embedding_status=row.embedding_status,
        expired=row.expired_at is not None,
    )
