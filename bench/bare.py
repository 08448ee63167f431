"""A bare one-process loop over the same stage functions, with one bulk write at the end.

What the pipeline is measured against. It reads, fingerprints, keeps raw bytes, parses, extracts and
embeds with the same functions, but has no leases, no retries, no isolation and no orchestration.
"""

import hashlib
import json
import resource
import sys
import time
from pathlib import Path

import sqlalchemy as sa

from penstock.app import open_app
from penstock.crawl.files import FolderListing
from penstock.crawl.simhash import simhash, to_signed, visible_text
from penstock.documents import Extraction, ExtractionRequest, RawDocument
from penstock.llm.profiles import profile_named
from penstock.rules import RulesExtractor
from penstock.settings import load_settings
from penstock.store.database import new_node_id
from penstock.store.schema import embeddings, nodes, texts
from penstock.text.extract import extract_text


def main(folder: str, *, lean: bool) -> None:
    """Ingest a folder without any of the machinery; `lean` leaves the crawl's functions out."""
    with open_app(load_settings()) as app:
        profile = profile_named("document")
        rules = RulesExtractor()
        app.embedder.embed(["warm"])
        started = time.perf_counter()
        rows = []
        for listed in FolderListing(Path(folder)).list():
            assert listed.path is not None
            content = listed.path.read_bytes()
            mark = None if lean else to_signed(simhash(visible_text(content)))
            if not lean:
                app.raw.put("bare", folder, listed.external_id, content, "html")
            found = extract_text(RawDocument(listed.external_id, content))
            request = ExtractionRequest(found.text, "document", found.title, found.metadata)
            answer = rules.extract([request])[0]
            fields = dict(answer.fields) if isinstance(answer, Extraction) else {}
            text = profile.embedded_text(fields, found.title, found.text)
            vector = app.embedder.embed([text[: app.embedder.window_chars]])[0]
            content_hash = hashlib.sha256(content).hexdigest()
            rows.append((listed.external_id, content_hash, mark, found, fields, vector))
        with app.database.write() as tx:
            made = [
                {
                    "seq": seq,
                    "id": new_node_id(),
                    "tenant_id": "bare",
                    "external_id": external_id,
                    "title": found.title,
                    "metadata": dict(found.metadata),
                    "fields": fields,
                    "content_hash": content_hash,
                    "simhash": mark,
                    "created_at": tx.now,
                    "updated_at": tx.now,
                }
                for seq, (external_id, content_hash, mark, found, fields, _) in enumerate(rows, 1)
            ]
            tx.execute(sa.insert(nodes), made)
            bodies = [
                {"seq": seq, "title": found.title or "", "body": found.text}
                for seq, (_, _, _, found, _, _) in enumerate(rows, 1)
            ]
            tx.execute(sa.insert(texts), bodies)
            vectors = [
                {
                    "seq": seq,
                    "identity": app.embedder.identity,
                    "vector": vector,
                    "embedded_at": tx.now,
                }
                for seq, (*_, vector) in enumerate(rows, 1)
            ]
            tx.execute(sa.insert(embeddings), vectors)
        seconds = time.perf_counter() - started
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(json.dumps({"seconds": seconds, "peak_mb": peak_mb, "documents": len(rows)}))


if __name__ == "__main__":
    main(sys.argv[1], lean="--lean" in sys.argv)
