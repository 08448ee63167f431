"""Bare loops over a folder, with one bulk write at the end: what the pipeline is measured against.

They parse, extract fields and embed, in one process or in two that share the folder, but have no
leases, no retries, no isolation and no orchestration. `--text penstock` uses the same stage
functions as `ingest`; `--text trafilatura` takes the text with that library and makes fields up.
Imports, the loading of the model and the first document are not part of the time.
"""

import argparse
import hashlib
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from penstock.app import App, open_app
from penstock.crawl.files import FolderListing
from penstock.documents import ExtractedText, Extraction, ExtractionRequest, RawDocument
from penstock.embed.embedder import Embedder
from penstock.llm.profiles import profile_named
from penstock.rules import RulesExtractor
from penstock.settings import load_settings
from penstock.store.database import new_node_id
from penstock.store.schema import embeddings, nodes, texts
from penstock.text.extract import extract_text


@dataclass(frozen=True, slots=True)
class Row:
    """What one document became."""

    external_id: str
    content_hash: str
    text: ExtractedText
    fields: dict[str, Any]
    vector: bytes


Reading = tuple[ExtractedText, dict[str, Any], str]
"""The text of a document, its fields, and what is embedded of it."""


def _read_with_stages() -> Callable[[str, bytes], Reading]:
    rules, profile = RulesExtractor(), profile_named("document")

    def read(external_id: str, content: bytes) -> Reading:
        found = extract_text(RawDocument(external_id, content))
        request = ExtractionRequest(found.text, "document", found.title, found.metadata)
        answer = rules.extract([request])[0]
        fields = dict(answer.fields) if isinstance(answer, Extraction) else {}
        return found, fields, profile.embedded_text(fields, found.title, found.text)

    return read


def _read_with_trafilatura() -> Callable[[str, bytes], Reading]:
    from trafilatura import extract

    def read(external_id: str, content: bytes) -> Reading:
        text = extract(content, fast=True, include_comments=False) or ""
        fields = {"title": external_id, "summary": text[:200]}
        return ExtractedText(text, external_id), fields, text

    return read


Documents = Sequence[tuple[str, Path]]
READERS = {"penstock": _read_with_stages, "trafilatura": _read_with_trafilatura}


class Loop:
    """Reads and embeds one document after the other."""

    def __init__(self, reader: str, embedder: Embedder) -> None:
        self._read = READERS[reader]()
        self._embedder = embedder

    def rows(self, documents: Documents) -> list[Row]:
        return [self._row(*document) for document in documents]

    def _row(self, external_id: str, path: Path) -> Row:
        content = path.read_bytes()
        text, fields, embedded = self._read(external_id, content)
        vector = self._embedder.embed([embedded[: self._embedder.window_chars]])[0]
        return Row(external_id, hashlib.sha256(content).hexdigest(), text, fields, vector)


@contextmanager
def forked(loop: Loop, processes: int) -> Iterator[Callable[[Documents], list[Row]]]:
    """Processes that wait for their part of the documents, with everything loaded."""
    context = multiprocessing.get_context("fork")
    pairs = [context.Pipe() for _ in range(processes)]
    children = [context.Process(target=_serve, args=(loop, theirs)) for _, theirs in pairs]
    for child in children:
        child.start()
    ours = [mine for mine, _ in pairs]

    def rows(documents: Documents) -> list[Row]:
        for number, connection in enumerate(ours):
            connection.send(documents[number::processes])
        return [row for connection in ours for row in connection.recv()]

    yield rows
    for child in children:
        child.join()


def _serve(loop: Loop, connection: Connection) -> None:
    connection.send(loop.rows(connection.recv()))


def main(folder: Path, reader: str, processes: int) -> dict[str, float]:
    with open_app(load_settings()) as app:
        loop = Loop(reader, app.embedder)
        loop.rows(_list(folder)[:1])
        if processes == 1:
            started = time.perf_counter()
            rows = loop.rows(_list(folder))
            write(app, rows)
            seconds = time.perf_counter() - started
        else:
            with forked(loop, processes) as work:
                started = time.perf_counter()
                rows = work(_list(folder))
                write(app, rows)
                seconds = time.perf_counter() - started
    return {"seconds": seconds, "peak_mb": 0.0, "documents": len(rows)}


def _list(folder: Path) -> list[tuple[str, Path]]:
    listed = FolderListing(folder).list()
    return [(one.external_id, one.path) for one in listed if one.path is not None]


def write(app: App, rows: Sequence[Row]) -> None:
    """All rows in one transaction."""
    with app.database.write() as tx:
        made = [
            {
                "seq": seq,
                "id": new_node_id(),
                "tenant_id": "bare",
                "external_id": row.external_id,
                "title": row.text.title,
                "metadata": dict(row.text.metadata),
                "fields": row.fields,
                "content_hash": row.content_hash,
                "created_at": tx.now,
                "updated_at": tx.now,
            }
            for seq, row in enumerate(rows, 1)
        ]
        tx.execute(sa.insert(nodes), made)
        bodies = [
            {"seq": seq, "title": row.text.title or "", "body": row.text.text}
            for seq, row in enumerate(rows, 1)
        ]
        tx.execute(sa.insert(texts), bodies)
        vectors = [
            {
                "seq": seq,
                "identity": app.embedder.identity,
                "vector": row.vector,
                "embedded_at": tx.now,
            }
            for seq, row in enumerate(rows, 1)
        ]
        tx.execute(sa.insert(embeddings), vectors)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--text", choices=READERS, default="penstock")
    parser.add_argument("--processes", type=int, default=1)
    chosen = parser.parse_args()
    found = main(chosen.folder, chosen.text, chosen.processes)
    sys.stdout.write(json.dumps(found))
