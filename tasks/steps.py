"""Tasks for flows of your own: crawl, extract text, extract fields, embed; one document a task run.

They need no run and no work items, and record nothing but the cost of model calls. A document that
fails fails its own task run. Parameters that all of them take:

    tenant: Whose documents these are. Results are never reused across tenants.
    blocks: Saved configuration blocks that win over the environment, as `type/name`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from penstock.documents import (
    Embedding,
    ExtractedText,
    Extraction,
    ExtractionRequest,
    ExtractionSkipped,
    Fault,
    RawDocument,
    RawReference,
)
from penstock.errors import DocumentFault, ErrorClass
from penstock.llm.answers import cap_fields
from tasks.parts import (
    Blocks,
    Document,
    Text,
    as_raw,
    as_text,
    choose_profile,
    embedded_texts,
    fetch_address,
    is_address,
    shared_app,
)
from tasks.policy import CACHED, DOCUMENT, fields_cache_key, text_cache_key, vectors_cache_key

LONGEST_NAME = 80


def _named(step: str, parameter: str) -> Callable[..., str]:
    """Names a task run for what it reads, as far as that has a name."""

    def name_run(parameters: dict[str, Any]) -> str:
        name = _name_of(parameters[parameter])
        return f"{step}, {name}" if name else step

    return name_run


def _name_of(subject: Any) -> str:
    name = subject if isinstance(subject, str) else ""
    if isinstance(subject, RawReference | RawDocument | Path):
        name = subject.name
    if isinstance(subject, ExtractedText):
        name = subject.title or ""
    return name.strip().partition("\n")[0][:LONGEST_NAME]


@task(
    name="crawl",
    task_run_name=_named("crawl", "source"),
    cache_policy=NO_CACHE,
    **DOCUMENT,
)
def crawl(source: str, *, tenant: str = "default", blocks: Blocks = None) -> list[RawReference]:
    """List a source and fetch its documents, with the checks and limits of `ingest`.

    Args:
        source: The name of a source, a folder, a file, a file of URLs, the URL of a site, sitemap,
            feed or job board, or s3://bucket/prefix.
        tenant: See above.
        blocks: See above.

    Returns:
        References for `extract_text`: files are read in place, other bytes lie in the raw store for
        as long as `PENSTOCK_KEEP_OLD_RAW_DAYS`. A document that cannot be fetched is left out, with
        a warning.

    Raises:
        ListingFailed: The source cannot be listed.
        DocumentFault: None of its documents can be fetched.
    """
    found = shared_app(blocks).collector.collect(source, tenant)
    documents = [one for one in found if isinstance(one, RawReference)]
    faults = [one for one in found if isinstance(one, Fault)]
    if faults and not documents:
        raise faults[0].as_error()
    for kind, count in Counter(fault.kind for fault in faults).items():
        example = next(fault.message for fault in faults if fault.kind is kind)
        get_run_logger().warning("%d left out (%s), such as: %s", count, kind, example)
    return documents


@task(
    name="extract_text",
    task_run_name=_named("extract text", "document"),
    cache_key_fn=text_cache_key,
    **CACHED,
)
def extract_text(
    document: Document, *, tenant: str = "default", blocks: Blocks = None
) -> ExtractedText:
    """The readable text of one document.

    Args:
        document: What `crawl` has found, a path, a URL, bytes, or a `RawDocument`.
        tenant: See above.
        blocks: See above.

    Raises:
        DocumentFault: The document cannot be fetched or read; its class says why.

    Example:
        texts = extract_text.map(crawl("/data/invoices"))
    """
    app = shared_app(blocks)
    if is_address(document):
        # A task run of its own, reused if the bytes are the same as before.
        return extract_text(fetch_address(app, str(document)), tenant=tenant, blocks=blocks)
    [found] = app.steps.parse([""], [as_raw(document)])
    if isinstance(found, Fault):
        raise found.as_error()
    return found


@task(
    name="extract_fields",
    task_run_name=_named("extract fields", "text"),
    cache_key_fn=fields_cache_key,
    **CACHED,
)
def extract_fields(
    text: Text, profile: str | None = None, *, tenant: str = "default", blocks: Blocks = None
) -> Extraction | ExtractionSkipped:
    """The fields of a profile, from the models or the offline rules, as in `ingest`.

    Args:
        text: A string, or what `extract_text` returns.
        profile: resume, job_posting, document, or one of your own; None: by content.
        tenant: See above.
        blocks: See above.

    Returns:
        Fields, confidence and model; or why nothing was tried, for a text that is too short.

    Raises:
        DocumentFault: The fields of this text could not be extracted.
        StagePaused: A setting is wrong, such as a key that is refused.
    """
    app, given = shared_app(blocks), as_text(text)
    request = ExtractionRequest(
        given.text,
        choose_profile(app, given, profile),
        given.title,
        given.metadata,
        tenant_id=tenant,
    )
    [found] = app.steps.extract([""], [request])
    if isinstance(found, Fault):
        raise found.as_error()
    if isinstance(found, ExtractionSkipped):
        return found
    return replace(found, fields=cap_fields(found.fields, app.caps))


@task(
    name="embed",
    task_run_name=_named("embed", "texts"),
    cache_key_fn=vectors_cache_key,
    **CACHED,
)
def embed(
    texts: Text | Sequence[Text], *, tenant: str = "default", blocks: Blocks = None
) -> list[Embedding]:
    """The vectors of texts.

    Args:
        texts: One text or several. Several share one task run and one result; `embed.map(texts)`
            has one of each for every text.
        tenant: See above.
        blocks: See above.

    Returns:
        One for each text, in order; what is longer than the model's window is cut.

    Raises:
        DocumentFault: A text is empty.
    """
    del tenant  # a part of the key
    app = shared_app(blocks)
    wanted = embedded_texts(app, texts)
    if not all(text.strip() for text in wanted):
        raise DocumentFault(ErrorClass.EMPTY, "a text to embed is empty: leave it out")
    vectors = app.steps.embed([], wanted)
    return [Embedding.of(app.embedder.identity, vector) for vector in vectors]
