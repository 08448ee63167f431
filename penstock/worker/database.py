"""A library of documents in one database, for programs that embed Penstock."""

from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.bootstrap import App, open_app
from penstock.search.hybrid import search
from penstock.search.query import HIT_END, HIT_START, Filters, Hit
from penstock.settings import load_settings
from penstock.worker.attachments import Attachment, find_attachments, insert_attachment


class Database:
    """A SQLite file, made if it is not there, or the address of a Postgres database.

    Close it, or use it in a `with` block. Settings other than these come from the environment.
    """

    def __init__(self, path: str | PathLike[str], timeout: float = 30.0) -> None:
        """`timeout`: seconds to wait for another writer of a SQLite file."""
        settings = load_settings(dsn=_url(fspath(path)))
        self.app: App = open_app(settings, timeout_seconds=timeout)
        self.tenant_id = settings.tenant

    def add_attachment(
        self, filename: str, path: str | PathLike[str], mime_type: str | None = None
    ) -> int:
        """Record a file; its id. The file is read when a worker comes to it, where it lies."""
        if "\0" in fspath(path):
            raise ValueError(f"{fspath(path)!r} is not the path of a file")
        with self.app.database.write() as tx:
            return insert_attachment(tx, self.tenant_id, filename, Path(path), mime_type)

    def get_attachment(self, attachment_id: int) -> Attachment | None:
        with self.app.database.read() as tx:
            return find_attachments(tx, self.tenant_id, [attachment_id]).get(attachment_id)

    def search(self, query: str, limit: int = 10) -> list[Hit]:
        """Full-text search, best first; in snippets, `**` stands around what was found."""
        with self.app.database.read() as tx:
            filters = Filters(self.tenant_id)
            hits = search(tx, query, filters, mode="text", limit=limit, embed=_no_vector)
        return [replace(hit, snippet=_marked(hit.snippet)) for hit in hits]

    def close(self) -> None:
        self.app.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _url(path: str) -> str:
    if "://" in path:
        return path
    if path == ":memory:":
        raise ValueError("a library needs a file: several connections share it, and memory is not")
    if "?" in path:
        raise ValueError(f"{path!r}: the name of a library cannot hold a question mark")
    return f"sqlite:///{Path(path).absolute()}"


def _marked(snippet: str) -> str:
    return snippet.replace(HIT_START, "**").replace(HIT_END, "**")


def _no_vector(query: str) -> tuple[bytes, str]:
    raise NotImplementedError(f"text search embeds nothing: {query!r}")
