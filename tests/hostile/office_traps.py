"""Word documents and archives built to swell, recurse or reach out."""

import struct
from collections.abc import Iterator

from penstock.errors import ErrorClass
from tests.hostile.seeds import PHRASE, make_docx, make_zip, read_zip
from tests.hostile.traps import CORRUPT, TEXT, TOO_LARGE, Case, case, external_entity, xml_bomb

BODY = "word/document.xml"
BOMB_BYTES = 70 * 1024**2

_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_STRICT = 'xmlns:w="http://purl.oclc.org/ooxml/wordprocessingml/main"'
_FORBIDDEN = frozenset({ErrorClass.FORBIDDEN})


def paragraph(text: str) -> str:
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def document(blocks: str, before: str = "", namespace: str = _W) -> bytes:
    """The XML of a Word document's body."""
    return f"{before}<w:document {namespace}><w:body>{blocks}</w:body></w:document>".encode()


def with_parts(**parts: bytes | None) -> bytes:
    """A valid document in which some parts are others, or missing; `__` stands for `/`."""
    changed = {
        name.replace("__", "/").replace("_xml", ".xml"): part for name, part in parts.items()
    }
    entries = read_zip(make_docx()) | changed
    return make_zip({name: part for name, part in entries.items() if part is not None})


def office_traps() -> Iterator[Case]:
    good = paragraph(PHRASE)
    for name, body, expected in (
        ("laughs", document(paragraph("&e11;") + good, xml_bomb()), CORRUPT),
        ("harmless-dtd", document(good, "<!DOCTYPE x []>"), CORRUPT),
        ("reaching-out", document(paragraph("&out;"), external_entity(__file__)), CORRUPT),
        ("reaching-net", document("&out;", external_entity("http://127.0.0.1:9/")), CORRUPT),
        ("deep-tables", document(_nested("<w:tbl><w:tr><w:tc>", 3_000)), CORRUPT),
        ("deep-controls", document(_nested("<w:sdt><w:sdtContent>", 100) + good), TEXT),
        ("tables", document(_nested("<w:tbl><w:tr><w:tc>", 80)), TEXT),
        ("deep-runs", document(_nested("<w:p><w:r>", 5_000)), CORRUPT),
        ("many", document(paragraph("word") * 50_000 + good), TEXT),
        ("no-body", b"<x/>", CORRUPT),
        ("no-xml", b"words", CORRUPT),
        ("nothing", b"", CORRUPT),
        ("strict", document(good, namespace=_STRICT), TEXT),
    ):
        yield case(f"{name}.docx", with_parts(word__document_xml=body), expected)
    yield case("bodiless.docx", with_parts(word__document_xml=None), CORRUPT)
    yield case("loop.docx", with_parts(word__document_xml=document(_header_loop() + good)), TEXT)
    yield case("no-types.docx", with_parts(**{"[Content_Types]_xml": None}), TEXT, PHRASE)
    yield from archive_traps()


def archive_traps() -> Iterator[Case]:
    bomb = with_parts(word__document_xml=b"<x>" + bytes(BOMB_BYTES))
    yield case("bomb.docx", bomb, TOO_LARGE)
    yield case("lying-bomb.docx", _understate(bomb, BOMB_BYTES + 3), CORRUPT)
    yield case("pictures.docx", with_parts(word__media__a_png=bytes(BOMB_BYTES)), TEXT, PHRASE)
    yield case("locked.docx", _lock(with_parts()), _FORBIDDEN)
    yield case("directory.docx", _many_entries(100_000), TOO_LARGE)
    yield case("climbing.docx", with_parts(**{"../../climbed_xml": b"<x/>"}), TEXT, PHRASE)
    yield case("cut.zip", make_zip({"a.txt": b"words" * 100})[:60], CORRUPT)


def _nested(opening: str, times: int) -> str:
    tags = [tag.strip("<>") for tag in opening.replace("><", ">|<").split("|")]
    closing = "".join(f"</{tag}>" for tag in reversed(tags))
    return opening * times + paragraph(PHRASE) + closing * times


def _header_loop() -> str:
    return '<w:sectPr><w:headerReference w:id="rId1"/><w:headerReference w:id="no"/></w:sectPr>'


def _understate(archive: bytes, size: int) -> bytes:
    """The archive with a small size declared where this one was."""
    return archive.replace(struct.pack("<I", size), struct.pack("<I", 100))


def _lock(archive: bytes) -> bytes:
    """The archive with all its entries marked as encrypted."""
    locked = bytearray(archive)
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = locked.find(mark)
        while start >= 0:
            locked[start + place] |= 1
            start = locked.find(mark, start + 4)
    return bytes(locked)


def _many_entries(count: int) -> bytes:
    """The directory of one entry, repeated."""
    archive = make_zip({BODY: document(paragraph(PHRASE))})
    start, end = archive.index(b"PK\x01\x02"), archive.index(b"PK\x05\x06")
    entry = archive[start:end] * count
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 65_535, 65_535, len(entry), start, 0)
    return archive[:start] + entry + tail
