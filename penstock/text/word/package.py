"""The parts of an Office document (a ZIP archive of XML), found by their relationships."""

import posixpath
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.documents import RawDocument
from penstock.errors import DocumentFault, ErrorClass
from penstock.text.archives import ArchiveTooLarge, open_archive, plain_name, read_entry
from penstock.text.markup import explain_syntax_error

# Far more XML than the longest book needs, and what fits into a child's memory as a tree.
UNPACKED_BYTES = 64 * 1024**2

_LIMIT = f"more than the {UNPACKED_BYTES} allowed"
_READ = (".xml", ".rels", ".htm", ".html", ".xhtml", ".mht", ".mhtml", ".txt")
_ADVICE = "open it in Word and save it again, or send it as PDF"
_UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, ValueError)


@dataclass(frozen=True, slots=True)
class Relation:
    """Where one part points to: the last word of the relation's type, and the part's name."""

    id: str
    kind: str
    target: str


class Package:
    """An opened document. Only parts that are asked for are unpacked: never its pictures.

    python-docx's own opening refuses templates, documents with macros, and any document with one
    dangling relation, and unpacks everything without limits.
    """

    def __init__(self, raw: RawDocument) -> None:
        self._name = raw.name
        try:
            self._archive = open_archive(raw.content)
        except ArchiveTooLarge as error:
            raise self._too_large(str(error)) from error
        except zipfile.BadZipFile as error:
            raise self.broken(error) from error
        self._entries = {plain_name(entry): entry for entry in self._archive.infolist()}
        self._refuse_bombs()

    def names(self) -> list[str]:
        return list(self._entries)

    def unpack(self, name: str) -> bytes:
        """The bytes of a part; raises DocumentFault when they cannot be had."""
        try:
            return read_entry(self._archive, self._entries[name], UNPACKED_BYTES)
        except KeyError:
            raise self.broken(f"it has no part {name}") from None
        except ArchiveTooLarge as error:
            raise self._too_large(str(error)) from error
        except RuntimeError as error:  # zipfile's way to ask for a password
            raise DocumentFault(
                ErrorClass.FORBIDDEN,
                f"{self._name}: the document is encrypted; remove its password and send it again",
            ) from error
        except _UNREADABLE as error:
            raise self.broken(f"{name}: {error}") from error

    def read(self, name: str) -> Any:
        """The root element of a part; raises DocumentFault when there is no such XML."""
        import docx.oxml.parser
        from lxml import etree  # type: ignore[import-untyped]

        try:
            root = docx.oxml.parser.parse_xml(self.unpack(name))
        except etree.XMLSyntaxError as error:
            raise self.broken(f"{name}: {explain_syntax_error(error)}") from error
        if root.getroottree().docinfo.doctype:
            raise self.broken(f"{name} has a DTD, which no Word document may have")
        return root

    def read_if_whole(self, name: str) -> Any | None:
        """The root of a part the document can do without; None when it cannot be read."""
        try:
            return self.read(name)
        except DocumentFault:
            return None

    def relations(self, source: str) -> Iterator[Relation]:
        """What a part points to; the package itself is the part without a name."""
        folder, base = posixpath.split(source)
        root = self.read_if_whole(posixpath.join(folder, "_rels", f"{base}.rels"))
        for element in () if root is None else root.iterchildren("{*}Relationship"):
            kind = element.get("Type", "").rpartition("/")[2]
            target = posixpath.normpath(posixpath.join("/", folder, element.get("Target", "")))
            yield Relation(element.get("Id", ""), kind, target.lstrip("/").lower())

    def broken(self, reason: object) -> DocumentFault:
        return DocumentFault(
            ErrorClass.CORRUPTION,
            f"{self._name}: the Word document is broken ({reason}); {_ADVICE}",
        )

    def unread(self, part: str) -> DocumentFault:
        return DocumentFault(
            ErrorClass.UNSUPPORTED,
            f"{self._name}: all its text is in a part that only Word can merge ({part}); {_ADVICE}",
        )

    def _refuse_bombs(self) -> None:
        read = (entry for name, entry in self._entries.items() if name.endswith(_READ))
        unpacked = sum(entry.file_size for entry in read)
        if unpacked > UNPACKED_BYTES:
            raise self._too_large(f"its text unpacks to {unpacked} bytes, {_LIMIT}")

    def _too_large(self, reason: str) -> DocumentFault:
        return DocumentFault(
            ErrorClass.TOO_LARGE, f"{self._name}: {reason}; split it into smaller documents"
        )
