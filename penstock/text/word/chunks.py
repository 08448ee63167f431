"""Parts of a Word document that are documents of another format, for Word to merge when it opens.

Programs that turn web pages into Word documents often leave the page as it is, in such a part.
"""

from collections.abc import Iterable, Mapping
from email import message_from_bytes
from typing import Any

from penstock.documents import RawDocument
from penstock.errors import DocumentFault
from penstock.text.characters import clean_text
from penstock.text.charsets import decode_text
from penstock.text.html.page import visible_text
from penstock.text.kinds import HTML, PLAIN, detect_media_type
from penstock.text.word.blocks import attribute
from penstock.text.word.package import Package, Relation

# Web pages with all their pictures, as browsers save them: a mail with many parts.
_WEB_ARCHIVES = (".mht", ".mhtml")


def merge_chunks(package: Package, body: Any, parts: Mapping[str, Relation]) -> list[str]:
    """Put a paragraph in the place of each chunk; returns the names of those nobody can read."""
    # Each part once, however often it is referred to: a small file could hold no end of text.
    chunks = {attribute(chunk, "id"): chunk for chunk in body.iter("{*}altChunk")}
    targets = {parts[id_].target: chunk for id_, chunk in chunks.items() if id_ in parts}
    texts = {target: _read_chunk(package, target) for target in targets}
    for target, text in texts.items():
        if text is not None:
            _replace(targets[target], text)
    return [target for target, text in texts.items() if text is None]


def _read_chunk(package: Package, target: str) -> str | None:
    try:
        raw = RawDocument(target, package.unpack(target))
    except DocumentFault:
        return None
    archived = target.endswith(_WEB_ARCHIVES)
    texts = map(_read_text, _archived(raw) if archived else (raw,))
    return next((text for text in texts if text is not None), None)


def _archived(raw: RawDocument) -> Iterable[RawDocument]:
    for part in message_from_bytes(raw.content).walk():
        content = part.get_payload(decode=True)
        if part.get_content_maintype() == "text" and isinstance(content, bytes):
            yield RawDocument(raw.name, content, part.get("Content-Type"))


def _read_text(raw: RawDocument) -> str | None:
    kind = detect_media_type(raw)
    if kind not in (HTML, PLAIN):
        return None
    text = decode_text(raw.content, raw.media_type, markup=kind == HTML)
    return clean_text(visible_text(text) if kind == HTML else text)


def _replace(chunk: Any, text: str) -> None:
    paragraph = element = chunk.makeelement(chunk.tag.replace("altChunk", "p"))
    for name in ("r", "t"):
        element.append(element.makeelement(chunk.tag.replace("altChunk", name)))
        element = element[0]
    element.text = text
    chunk.getparent().replace(chunk, paragraph)
