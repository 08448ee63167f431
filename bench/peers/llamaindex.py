"""LlamaIndex's IngestionPipeline over a folder of pages, in an environment of its own.

`python -m bench.peers.llamaindex FOLDER OUTPUT WORKERS [--memory]`: every page is one document and
one node; its text is taken with trafilatura, its fields are made up, its vector is LlamaIndex's own
mock. The time is from the reading of the files to the stores written to disk; imports are not part
of it, but for those of the processes that the pipeline itself starts.
"""

import json
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from llama_index.core import Document, MockEmbedding
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import BaseNode, TextNode, TransformComponent
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores import SimpleVectorStore
from trafilatura import extract

from bench.memory import PeakMemory

DIMENSIONS = 64


class MainText(TransformComponent):  # type: ignore[misc]  # its types are in the peers' environment
    """Takes the article out of a page."""

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> Sequence[BaseNode]:
        return [_as_text(node) for node in nodes]


class MockFields(TransformComponent):  # type: ignore[misc]  # as above
    """Fields without a model."""

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> Sequence[BaseNode]:
        for node in nodes:
            node.metadata |= {"title": node.node_id, "summary": node.text[:200]}
        return nodes


def _as_text(node: BaseNode) -> BaseNode:
    text = extract(node.text, fast=True, include_comments=False) or ""
    return TextNode(id_=node.node_id, text=text, metadata=node.metadata)


def main(folder: Path, output: Path, workers: int, *, with_memory: bool) -> dict[str, float]:
    memory = PeakMemory(proportional=True)
    pipeline = IngestionPipeline(
        transformations=[MainText(), MockFields(), MockEmbedding(embed_dim=DIMENSIONS)],
        docstore=SimpleDocumentStore(),
        vector_store=SimpleVectorStore(),
        # A cache would keep every page a second time; each is new.
        disable_cache=True,
    )
    with memory if with_memory else nullcontext():
        started = time.perf_counter()
        documents = [
            Document(text=path.read_bytes().decode(errors="replace"), id_=path.name)
            for path in sorted(folder.iterdir())
        ]
        nodes = pipeline.run(documents=documents, num_workers=workers if workers > 1 else None)
        pipeline.persist(str(output))
        assert pipeline.vector_store is not None
        pipeline.vector_store.persist(str(output / "vectors.json"))
        seconds = time.perf_counter() - started
    return {"seconds": seconds, "peak_mb": memory.peak_mb, "documents": len(nodes)}


if __name__ == "__main__":
    found = main(
        Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), with_memory="--memory" in sys.argv
    )
    sys.stdout.write(json.dumps(found))
