"""A library of documents in one database, for programs that embed Penstock."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa

from penstock.app import App, open_app
from penstock.crawl.files import path_of_uri
from penstock.search.hybrid import search
from penstock.search.query import HIT_END, HIT_START, Filters, Hit
from penstock.settings import load_settings
from penstock.store.database import Tx, new_node_id
from penstock.store.schema import nodes, texts


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
        """Where the file is."""
        return path_of_uri(self.uri)


def find_attachments(tx: Tx, tenant_id: str, ids: Collection[int]) -> dict[int, Attachment]:
    """Those of this tenant that exist, by id."""
    query = (
        sa.select(nodes, texts.c.body)
        .outerjoin(texts, texts.c.seq == nodes.c.seq)
        .where(nodes.c.tenant_id == tenant_id, nodes.c.seq.in_(ids))
        .where(nodes.c.source_id.is_(None), nodes.c.url.startswith("file:"))
    )
    return {
        row.seq: Attachment(
            id=row.seq,
            node_id=row.id,
            filename=row.external_id,
            uri=row.url,
            mime_type=row.media_type,
            title=row.title,
            text=row.body,
            metadata=row.metadata,
        )
        for row in tx.execute(query)
    }


class Database:
    """A library of documents. Close it, or use it in a `with` block.

    Args:
        path: A SQLite file, made if it is not there, or the address of a Postgres database. All
            other settings come from the environment.
        timeout: Seconds to wait for another writer of a SQLite file.

    Raises:
        ValueError: The path cannot hold a library.
        ConfigurationError: The database cannot be opened, or has another version's schema.

    Example:
        with Database("library.db") as db:
            attachment_id = db.add_attachment("paper.pdf", "/path/to/paper.pdf")
    """

    def __init__(self, path: str | PathLike[str], timeout: float = 30.0) -> None:
        settings = load_settings(dsn=_url(fspath(path)))
        self.app: App = open_app(settings, timeout_seconds=timeout)
        self.tenant_id = settings.tenant

    def add_attachment(
        self, filename: str, path: str | PathLike[str], mime_type: str | None = None
    ) -> int:
        """Record a file.

        Args:
            filename: What people see, and a hint for the type.
            path: Where a worker will read the file.
            mime_type: What it is said to be; None: found out from its content.

        Returns:
            The attachment's id, for `ExtractionWorker.enqueue`.

        Raises:
            ValueError: This is not the path of a file.
        """
        if "\0" in fspath(path):
            raise ValueError(f"{fspath(path)!r} is not the path of a file")
        with self.app.database.write() as tx:
            row: dict[str, Any] = {
                "id": new_node_id(),
                "tenant_id": self.tenant_id,
                "external_id": filename,
                "url": Path(path).absolute().as_uri(),
                "media_type": mime_type,
                "metadata": {},
                "fields": {},
                "created_at": tx.now,
                "updated_at": tx.now,
            }
            inserted = sa.insert(nodes).values(row).returning(nodes.c.seq)
            attachment_id: int = tx.execute(inserted).scalar_one()
        return attachment_id

    def get_attachment(self, attachment_id: int) -> Attachment | None:
        """The attachment with this `attachment_id`, and its text once there is one; None for an
        unknown id."""
        with self.app.database.read() as tx:
            return find_attachments(tx, self.tenant_id, [attachment_id]).get(attachment_id)

    def search(self, query: str, limit: int = 10) -> list[Hit]:
        """Full-text search for the words of `query`: at most `limit` hits, the best first. In
        snippets, `**` stands around what was found."""
        with self.app.database.read() as tx:
            filters = Filters(self.tenant_id)
            hits = search(tx, query, filters, mode="text", limit=limit, embed=_no_vector)
        marks = str.maketrans({HIT_START: "**", HIT_END: "**"})
        return [replace(hit, snippet=hit.snippet.translate(marks)) for hit in hits]

    def close(self) -> None:
        """Close the connections."""
        self.app.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _url(path: str) -> str:
    if "://" in path:
        return path
    if path == ":memory:":
        raise ValueError("a library needs a file: connections cannot share memory")
    if "?" in path:
        raise ValueError(f"{path!r}: the name of a library cannot hold a question mark")
    return f"sqlite:///{Path(path).absolute()}"


def _no_vector(query: str) -> tuple[bytes, str]:
    raise NotImplementedError(f"text search embeds nothing: {query!r}")
