"""Plain text, Markdown and reStructuredText: readable as they stand, but for their titles."""

import re
from itertools import pairwise

from penstock.documents import ExtractedText, RawDocument
from penstock.text.charsets import decode_text
from penstock.text.kinds import MARKDOWN, PLAIN, RST

# A title stands near the start, and a line longer than this is none.
_TITLE_WINDOW = 65_536
_LONGEST_TITLE = 500
_FRONT_MATTER = re.compile(r"\s*(---|\+\+\+)[ \t]*\n(.*?)\n(?:\1|\.\.\.)[ \t]*(?:\n|$)", re.DOTALL)
_FRONT_TITLE = re.compile(
    r"^title[ \t]*[:=][ \t]*(?:[>|][+-]?[ \t]*\n[ \t]+)?(\S.*)$", re.IGNORECASE | re.MULTILINE
)
_FENCE = re.compile(r" {0,3}(```|~~~)")
_HEADING = re.compile(r"#[ \t]+(.*)")
_UNDERLINE = re.compile(r"=+\s*")
_ADORNMENT = re.compile(r"([=\-~#*^\"'`+:._])\1{2,}\s*")


def extract_plain(raw: RawDocument) -> ExtractedText:
    """The text as it stands."""
    return ExtractedText(decode_text(raw.content, raw.media_type), media_type=PLAIN)


def extract_markdown(raw: RawDocument) -> ExtractedText:
    """The title is the front matter's, or the first heading."""
    text = _decode(raw)
    start = text[:_TITLE_WINDOW]
    front = _FRONT_MATTER.match(start)
    title = _front_title(front.group(2)) if front else None
    body = start[front.end() :] if front else start
    return ExtractedText(text, title=title or _markdown_heading(body), media_type=MARKDOWN)


def extract_rst(raw: RawDocument) -> ExtractedText:
    """The title is the first heading."""
    text = _decode(raw)
    return ExtractedText(text, title=_rst_heading(text[:_TITLE_WINDOW]), media_type=RST)


def _decode(raw: RawDocument) -> str:
    return decode_text(raw.content, raw.media_type).replace("\r\n", "\n")


def _front_title(front_matter: str) -> str | None:
    found = _FRONT_TITLE.search(front_matter)
    return found.group(1).strip().strip("\"'") if found else None


def _markdown_heading(text: str) -> str | None:
    fenced = False
    for line, below in pairwise([*text.split("\n"), ""]):
        if _FENCE.match(line):
            fenced = not fenced
        if fenced or len(line) > _LONGEST_TITLE:
            continue
        if found := _HEADING.match(line):
            return found.group(1).rstrip().rstrip("#").rstrip() or None
        if line.strip() and not line[:1].isspace() and _UNDERLINE.fullmatch(below):
            return line
    return None


def _rst_heading(text: str) -> str | None:
    above = ""
    for line, below in pairwise([*text.split("\n"), ""]):
        # Only between two adornments may a title be indented.
        flush = not line[:1].isspace() or (above and above.rstrip() == below.rstrip())
        is_title = line.strip() and len(line) <= _LONGEST_TITLE and not _ADORNMENT.fullmatch(line)
        if is_title and flush and _ADORNMENT.fullmatch(below):
            return line.strip()
        above = line
    return None
