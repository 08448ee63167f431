"""A flow of your own, made of Penstock's tasks: which documents of a source are about the same.

    python -m examples.similar_documents docs/howto

It reads every document, extracts its fields, embeds its text, and leaves a table of the most
similar pairs in Prefect. A second start reuses the results of each document that has not changed.
"""

import sys
from itertools import combinations
from typing import Any

from prefect import flow, get_run_logger
from prefect.artifacts import create_table_artifact

from penstock import Embedding, Extraction, ExtractionSkipped
from tasks.steps import crawl, embed, extract_fields, extract_text


@flow(name="similar-documents")
def similar_documents(source: str, pairs: int = 5) -> list[dict[str, Any]]:
    """Crawl → text → fields and vectors → the most similar pairs."""
    documents = crawl(source)
    texts = extract_text.map(documents)
    texts.wait()
    # A document that cannot be read has failed in a task run of its own; the others go on.
    read = [
        (document.name, text)
        for document, text in zip(documents, texts, strict=True)
        if text.state.is_completed()
    ]
    fields = extract_fields.map([text for _, text in read], profile="document")
    vectors = embed.map([text for _, text in read])

    titles = [_title(found, name) for found, (name, _) in zip(fields.result(), read, strict=True)]
    rows = rank_pairs(titles, [vector for [vector] in vectors.result()])[:pairs]
    create_table_artifact(key="similar-documents", table=rows)
    for row in rows:
        get_run_logger().info("%(similarity).3f: %(first)s and %(second)s", row)
    return rows


def _title(found: Extraction | ExtractionSkipped, name: str) -> str:
    title = found.fields.get("title") if isinstance(found, Extraction) else None
    return f"{title} ({name})" if title else name


def rank_pairs(titles: list[str], vectors: list[Embedding]) -> list[dict[str, Any]]:
    """Every pair with the cosine of its vectors, the most similar first."""
    named = zip(titles, vectors, strict=True)
    rows = [
        {"first": one, "second": other, "similarity": _cosine(a, b)}
        for (one, a), (other, b) in combinations(named, 2)
    ]
    return sorted(rows, key=lambda row: -row["similarity"])


def _cosine(a: Embedding, b: Embedding) -> float:
    """Vectors are of unit length."""
    return round(sum(x * y for x, y in zip(a.values, b.values, strict=True)), 3)


if __name__ == "__main__":
    similar_documents(sys.argv[1])
