"""Cuts a text into passages by its structure, at exact offsets."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.documents import HEADINGS, PAGE_STARTS, Passage
from penstock.text.charsets import TITLE_CHARS, clean_line

# Behind a blank line, the end of a line, of a sentence, a clause, a word.
_ENDS = ("\n\n", "\n", ". ", "; ", " ")
# A passage is at least this share of the wanted length, as far as the text has ends for it.
_LEAST = 0.5
# A rest that is hardly longer than a passage is cut in the middle.
_REST = 0.6
_MARKDOWN = re.compile(r"#{1,6}[ \t]+|[ \t]+#+$")


def cut_passages(text: str, chars: int, metadata: Mapping[str, Any]) -> list[Passage]:
    """The passages of a text, none longer than `chars`; together they have all of its words."""
    pages = [one for one in _listed(metadata, PAGE_STARTS) if isinstance(one, int)]
    headings = [*_read_headings(metadata, text)]
    breaks = [start for start, _, _ in headings]
    paths = [*_paths(headings)]
    return [
        Passage(
            start,
            end,
            bisect_right(pages, start) or None,
            paths[found - 1] if (found := bisect_right(breaks, start)) else (),
        )
        for start, end in _cut(text, chars, breaks, pages)
    ]


def _cut(
    text: str, chars: int, headings: Sequence[int], pages: Sequence[int]
) -> Iterator[tuple[int, int]]:
    start = _next_word(text, 0)
    while start < len(text):
        end = _find_end(text, start, chars, headings, pages)
        yield start, start + len(text[start:end].rstrip())
        start = _next_word(text, end)


def _next_word(text: str, start: int) -> int:
    while start < len(text) and text[start].isspace():
        start += 1
    return start


def _find_end(
    text: str, start: int, chars: int, headings: Sequence[int], pages: Sequence[int]
) -> int:
    """Where the strongest break is behind which the passage is neither short nor too long."""
    left = len(text) - start
    if left <= chars:
        return len(text)
    last = start + min(chars, max(1, int(left * _REST)))
    first = start + int((last - start) * _LEAST)
    for breaks in (headings, pages):
        found = bisect_right(breaks, last)
        if found and breaks[found - 1] > first:
            return breaks[found - 1]
    for end in _ENDS:
        place = text.rfind(end, first, last)
        if place >= 0:
            return place + len(end)
    return last


def _paths(headings: Sequence[tuple[int, int, str]]) -> Iterator[tuple[str, ...]]:
    """For each heading, itself below those that are above it."""
    above: list[tuple[int, str]] = []
    for _, level, words in headings:
        above = [one for one in above if one[0] < level]
        above.append((level, words))
        yield tuple(one[1] for one in above)


def _read_headings(metadata: Mapping[str, Any], text: str) -> Iterator[tuple[int, int, str]]:
    for one in _listed(metadata, HEADINGS):
        match one:
            case [int(start), int(level)] if start < len(text):
                line = text[start : start + TITLE_CHARS].partition("\n")[0]
                yield start, level, _MARKDOWN.sub("", line)


def _listed(metadata: Mapping[str, Any], name: str) -> Sequence[Any]:
    """Users' extractors may have metadata of the same name."""
    found = metadata.get(name)
    return found if isinstance(found, list | tuple) else ()


def locate_headings(text: str, headings: Sequence[tuple[int, str]]) -> list[list[int]]:
    """Where each of these begins that is a line of the text, and its level."""
    located: list[list[int]] = []
    after = 0
    for level, words in headings:
        line = clean_line(words)
        start = _find_line(text, line, after) if line else -1
        if start >= 0:
            located.append([start, level])
            after = start + len(line)
    return located


def _find_line(text: str, line: str, after: int) -> int:
    """Where the line begins; -1 when there is none behind this place."""
    start = text.find(line, after)
    while start >= 0:
        end = start + len(line)
        if (start == 0 or text[start - 1] == "\n") and text[end : end + 1] in ("", "\n"):
            return start
        start = text.find(line, end)
    return -1
