"""PDFs written by hand, with loops and lies where parsers believe them."""

from collections.abc import Iterator, Sequence

from tests.hostile.seeds import PHRASE
from tests.hostile.traps import CORRUPT, FATAL, SENSIBLE, TEXT, Case, Expected, case

_CATALOG = b"<< /Type /Catalog /Pages 2 0 R >>"
_FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
_PAGE = (
    b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 5 0 R "
    b"/Resources << /Font << /F1 4 0 R >> >> >>"
)


def stream(content: bytes, entries: bytes = b"") -> bytes:
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(content), entries, content)


TEXT_STREAM = stream(b"BT /F1 12 Tf 50 700 Td (%s) Tj ET" % PHRASE.encode())


def write_pdf(objects: Sequence[bytes], trailer: bytes = b"") -> bytes:
    """The objects, numbered from 1 (the catalog), with a table of their true offsets."""
    parts, offsets, place = [b"%PDF-1.7\n"], [], 9
    for number, body in enumerate(objects, 1):
        offsets.append(place)
        parts.append(b"%d 0 obj\n%s\nendobj\n" % (number, body))
        place += len(parts[-1])
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    parts.append(b"xref\n0 %d\n0000000000 65535 f \n%s" % (size, table))
    parts.append(b"trailer\n<< /Size %d /Root 1 0 R %s >>\n" % (size, trailer))
    parts.append(b"startxref\n%d\n%%%%EOF\n" % place)
    return b"".join(parts)


def pages(kids: bytes, count: int) -> bytes:
    return b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, count)


def small_pdf(pages_object: bytes, page: bytes = _PAGE, content: bytes = TEXT_STREAM) -> bytes:
    return write_pdf([_CATALOG, pages_object, page, _FONT, content])


def pdf_traps() -> Iterator[Case]:
    one = pages(b"3 0 R", 1)
    yield case("fine.pdf", small_pdf(one), TEXT, PHRASE)
    for name, tree in (
        ("loop", pages(b"2 0 R", 1)),
        ("loop-beside", pages(b"3 0 R 2 0 R", 2)),
        ("twice", pages(b"3 0 R " * 50, 50)),
        ("no-kids", b"<< /Type /Pages >>"),
        ("count-zero", pages(b"3 0 R", 0)),
        ("count-minus", pages(b"3 0 R", -1)),
        ("count-thousand", pages(b"3 0 R", 1_000)),
        ("count-many", pages(b"3 0 R", 100_000)),
        ("count-most", pages(b"3 0 R", 2**31 - 1)),
        ("kids-missing", pages(b"77 0 R", 1)),
        ("kids-itself", b"2 0 R"),
    ):
        yield case(f"{name}.pdf", small_pdf(tree))
    yield from _stream_traps(one)
    yield from _file_traps(one)


def _stream_traps(one: bytes) -> Iterator[Case]:
    content = b"BT /F1 12 Tf (%s) Tj ET" % PHRASE.encode()
    for name, body in (
        ("length-itself", b"<< /Length 5 0 R >>\nstream\n%s\nendstream" % content),
        ("length-most", b"<< /Length 4294967295 >>\nstream\n%s\nendstream" % content),
        ("filters", stream(content, b"/Filter [%s]" % (b"/FlateDecode " * 1_000))),
        ("content-loop", b"[5 0 R 5 0 R]"),
        ("strings", stream(b"BT /F1 12 Tf (" + b"(" * 100_000)),
        ("arrays", stream(b"[" * 100_000)),
        ("states", stream(b"q " * 100_000 + content)),
        ("far-text", stream(content.replace(b"12 Tf", b"1e38 Tf 1e38 1e38 Td"))),
    ):
        yield case(f"{name}.pdf", small_pdf(one, content=body))
    page = _PAGE.replace(b"/Font <<", b"/XObject << /X 6 0 R >> /Font <<")
    form = stream(b"/X Do " * 10, b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] " + _RESOURCES)
    looping = write_pdf([_CATALOG, one, page, _FONT, stream(b"/X Do " + content), form])
    yield case("form-loop.pdf", looping, FATAL)


_RESOURCES = b"/Resources << /XObject << /X 6 0 R >> >>"


def _file_traps(one: bytes) -> Iterator[Case]:
    fine = small_pdf(one)
    objects = [_CATALOG, one, _PAGE, _FONT, TEXT_STREAM]
    self_holding = stream(b"6 0 ", b"/Type /ObjStm /N 1 /First 4 /Extends 6 0 R")
    nested: Expected = SENSIBLE
    for name, content, expected in (
        ("table-loop", write_pdf(objects, b"/Prev 9"), nested),
        ("table-itself", fine.replace(b"/Root", b"/Prev %d /Root" % fine.index(b"xref\n")), nested),
        ("object-stream", write_pdf([*objects, self_holding]), TEXT),
        ("deep-object", write_pdf([*objects, b"[" * 100_000 + b"]" * 100_000]), nested),
        ("deep-catalog", small_pdf(b"<< /A " * 5_000 + b">>" * 5_000), nested),
        ("no-table", fine[: fine.index(b"xref\n")], nested),
        ("header-only", b"%PDF-1.7\n", CORRUPT),
        ("rubbish-before", b"HTTP/1.1 200 OK\n\n" + fine, TEXT),
        ("rubbish-after", fine + bytes(5_000), TEXT),
    ):
        yield case(f"{name}.pdf", content, expected)
    kids = b" ".join(b"%d 0 R" % number for number in range(4, 10_004))
    leaf = _PAGE.replace(b"4 0 R", b"3 0 R").replace(b"5 0 R", b"10004 0 R")
    book = [_CATALOG, pages(kids, 10_000), _FONT, *[leaf] * 10_000, TEXT_STREAM]
    yield case("book.pdf", write_pdf(book), TEXT, PHRASE)
