"""XML as readable text, from data files to feeds and papers; nothing in it is expanded."""

import html.entities
import re
from collections.abc import Iterator
from typing import Any

from penstock.documents import ExtractedText, RawDocument
from penstock.errors import DocumentFault, ErrorClass
from penstock.text.charsets import decode_text
from penstock.text.fragments import readable_value
from penstock.text.kinds import XML

BEYOND_LIMITS = "nested too deeply, or with entities that expand too far"

_DECLARATION = re.compile(r"\s*<\?xml[^>]*\?>")
_ENCODING = re.compile(rb"""\s*<\?xml[^>]*encoding\s*=\s*["']([\w.:-]+)""")
_SPACE = re.compile(r"\s+")
_TITLES = ("{*}title", "{*}article-title")


def extract_xml(raw: RawDocument) -> ExtractedText:
    """A line for the text of each element; of the attributes where there is no other text."""
    root, cut_short = _parse(raw)
    text = "\n".join(_lines(root)) or "\n".join(_attribute_lines(root))
    if cut_short and not text:
        raise _broken(raw, BEYOND_LIMITS)
    return ExtractedText(
        text,
        title=next(filter(None, (e.text for e in root.iter(*_TITLES))), None),
        media_type=XML,
        metadata={"truncated": True} if cut_short else {},
    )


def explain_syntax_error(error: Any) -> str:
    """What is wrong, in words; raises MemoryError where the parser only ran out of memory."""
    from lxml.etree import ErrorTypes  # type: ignore[import-untyped]

    if error.code == ErrorTypes.ERR_NO_MEMORY:
        raise MemoryError
    return BEYOND_LIMITS if error.code == ErrorTypes.ERR_RESOURCE_LIMIT else str(error.msg)


def _parse(raw: RawDocument) -> tuple[Any, bool]:
    """The root element, and whether a limit of the parser kept it from reading on."""
    from lxml import etree  # type: ignore[import-untyped]

    # The limits of huge_tree=False stop entities that multiply inside attributes, too.
    parser = etree.XMLParser(
        resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False, recover=True
    )
    source = decode_text(raw.content, _declared_type(raw)).lstrip("\ufeff")
    body = source[found.end() :] if (found := _DECLARATION.match(source)) else source
    try:
        root = etree.fromstring(body.encode("utf-8", "ignore"), parser)
    except etree.XMLSyntaxError as error:
        raise _broken(raw, explain_syntax_error(error)) from error
    limited = any(e.type == etree.ErrorTypes.ERR_RESOURCE_LIMIT for e in parser.error_log)
    if root is None:
        raise _broken(raw, BEYOND_LIMITS if limited else "it has no element")
    return root, limited


def _broken(raw: RawDocument, reason: str) -> DocumentFault:
    return DocumentFault(
        ErrorClass.CORRUPTION,
        f"{raw.name}: the XML is broken ({reason}); mend it and send it again",
    )


def _declared_type(raw: RawDocument) -> str | None:
    """The declared type where it names a charset, else what the XML declaration says, like it."""
    found = _ENCODING.match(raw.content)
    if found is None or "charset" in (raw.media_type or "").lower():
        return raw.media_type
    return f"application/xml; charset={found.group(1).decode('ascii')}"


def _lines(root: Any) -> Iterator[str]:
    pieces: list[str] = []
    _gather(root, pieces)
    return filter(None, map(str.strip, "".join(pieces).split("\n")))


def _gather(element: Any, pieces: list[str]) -> None:
    """The parser reads no deeper than 256 elements, so this may call itself."""
    pieces.append(_words(element.text))
    inline = _is_sentence(element)
    for child in element:
        if isinstance(child.tag, str):
            edge = "" if inline and len(child) <= 1 else "\n"
            pieces.append(edge)
            _gather(child, pieces)
            pieces.append(edge)
        else:
            pieces.append(_entity_text(child))
        pieces.append(_words(child.tail))


def _is_sentence(element: Any) -> bool:
    """Whether the elements inside are words of a running text, such as emphasis or a link."""
    return bool((element.text or "").strip()) and any((c.tail or "").strip() for c in element)


def _words(text: str | None) -> str:
    if not text:
        return ""
    readable = readable_value(text)
    return _SPACE.sub(" ", text) if readable is text else f"\n{readable}\n"


def _entity_text(node: Any) -> str:
    """The character an entity of HTML stands for; nothing for comments and other entities."""
    text = node.text or ""
    return (
        html.unescape(text)
        if re.fullmatch(r"&\w+;", text) and text[1:] in html.entities.html5
        else ""
    )


def _attribute_lines(root: Any) -> Iterator[str]:
    for element in root.iter("{*}*"):
        if line := ", ".join(f"{_bare(key)}: {value}" for key, value in element.items() if value):
            yield f"{_bare(element.tag)} {line}"


def _bare(name: str) -> str:
    return name.rpartition("}")[2]
