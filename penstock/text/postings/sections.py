"""The body and the requirements of a job among the keys of an object that describes it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from penstock.text.postings.blocks import LOOKS_LIKE_HEADING, Block, bare_letters, read_blocks
from penstock.text.postings.requirements import names_section, split_parts

_DEPTH = 5
_MOST_PARTS = 100
_PROSE_CHARS = 60
_HEADING_CHARS = 100

_TITLE_KEYS = (
    *("title", "jobtitle", "postingtitle", "positiontitle", "requisitiontitle", "jobpostingtitle"),
    *("displaytitle", "positionname", "jobname", "postingname", "name", "text"),
)
_SECTION_TITLES = ("title", "heading", "header", "text", "name", "label")
_ASKING_KEY = re.compile(
    r"qualification|requirement|prerequisite|musthave|nicetohave|educationandexperience"
    r"|skillsandexp|whatyoubring|whoyouare|candidateprofile"
)
_TELLING_KEY = re.compile(
    r"description|summary|overview|content|responsib|duties|^(job)?body|about|^intro|opening|closing"
    r"|conclusion|additional|benefits|whatyou|^(job)?details$|team"
)
_UNREAD_KEY = re.compile(
    r"^(meta|seo|og|social|short|brief)|snippet|teaser|legal|disclaimer|privacy|cookie|eeo|equal"
    r"|compliance|gdpr|^appl|question|forms?$|confirm|notice|banner|footer|^nav|related|similar"
    r"|recommend|other(job|position|posting)|translat|i18n|theme|branding|demographic|survey|alert"
    r"|share|breadcrumb|image|video|url$|keywords"
)
_FACT_KEY = re.compile(r"location|^(job|requisition|posting)?id$|url$|^slug$")


@dataclass(frozen=True, slots=True)
class _Part:
    asking: bool
    blocks: tuple[Block, ...]


def read_title(node: Mapping[str, Any]) -> str:
    """What the object calls the job, or nothing."""
    keyed = {bare_key(key): value for key, value in node.items()}
    titles = (keyed.get(key) for key in _TITLE_KEYS)
    return next((title for title in titles if isinstance(title, str) and title.strip()), "")


def is_asking_key(name: str) -> bool:
    """Whether a bare key is that of requirements."""
    return bool(_ASKING_KEY.search(name))


@lru_cache(maxsize=4096)
def bare_key(key: str) -> str:
    """`job_title`, `jobTitle` and `job-title` are one key."""
    return re.sub(r"[^a-z0-9]", "", key.lower())


def read_sections(
    node: Mapping[str, Any], rows: Mapping[str, Any]
) -> tuple[tuple[Block, ...], tuple[Block, ...]]:
    """(what is told about the job, what is kept apart as requirements); rows are named texts."""
    parts = list(islice(_Sections(rows).read(node, None, _DEPTH), _MOST_PARTS))
    asking = drop_repeats([part.blocks for part in parts if part.asking])
    apart = tuple(block for part in asking for block in part)
    telling = drop_repeats([part.blocks for part in parts if not part.asking])
    if len(telling) == 1:
        return telling[0], apart
    told, asked = split_parts(telling)
    return told, (*asked, *apart)


def drop_repeats(parts: Sequence[tuple[Block, ...]]) -> list[tuple[Block, ...]]:
    """The texts without those that others hold too; of two alike, the one with more markup."""
    letters = [bare_letters(part) for part in parts]
    order = sorted(range(len(parts)), key=lambda n: (-len(letters[n]), -_marks(parts[n])))
    kept: list[int] = []
    for number in order:
        if not any(letters[number] in letters[other] for other in kept):
            kept.append(number)
    return [parts[number] for number in sorted(kept)]


def _marks(blocks: Sequence[Block]) -> int:
    return len(blocks) + sum(block.item or block.rank > 0 for block in blocks)


class _Sections:
    """Reads the texts of an object by the names of their keys, down to a few levels."""

    def __init__(self, rows: Mapping[str, Any]) -> None:
        self._rows = rows

    def read(self, node: Mapping[str, Any], asking: bool | None, depth: int) -> Iterator[_Part]:
        for key, value in node.items():
            name = bare_key(key)
            if not _UNREAD_KEY.search(name):
                yield from self._read_value(value, _role(name, asking), depth)

    def _read_value(self, value: Any, asking: bool | None, depth: int) -> Iterator[_Part]:
        text = self._rows.get(value, value) if isinstance(value, str) else value
        if isinstance(text, str) and asking is not None:
            yield from self._read_text(text, asking)
        elif isinstance(value, list) and depth:
            yield from self._read_list(value, asking, depth - 1)
        elif isinstance(value, dict) and depth and not _is_other_job(value):
            yield from self._read_section(value, asking, depth - 1)

    def _read_text(self, text: str, asking: bool) -> Iterator[_Part]:
        if len(text) >= _PROSE_CHARS or "<" in text:
            yield _Part(asking, tuple(read_blocks(text)))

    def _read_list(self, values: Sequence[Any], asking: bool | None, depth: int) -> Iterator[_Part]:
        lines = [line for value in values if (line := _lone_text(value))]
        if lines and asking is not None and sum(map(len, lines)) >= _PROSE_CHARS:
            yield _Part(asking, tuple(_items(lines)))
        elif not lines:
            for value in values:
                yield from self._read_value(value, asking, depth)

    def _read_section(
        self, section: Mapping[str, Any], asking: bool | None, depth: int
    ) -> Iterator[_Part]:
        heading = next((key for key in section if _is_section_title(key, section[key])), None)
        title = str(section[heading]).strip() if heading else ""
        role = False if asking is None and names_section(title) else asking
        rest = {key: value for key, value in section.items() if key != heading}
        for part in self.read(rest, role, depth):
            head = read_blocks(title)[:1]
            marked = (Block(block.text, LOOKS_LIKE_HEADING) for block in head)
            yield _Part(part.asking, (*marked, *part.blocks))


def _role(name: str, asking: bool | None) -> bool | None:
    if is_asking_key(name):
        return True
    return False if asking is None and _TELLING_KEY.search(name) else asking


def _is_other_job(node: Mapping[str, Any]) -> bool:
    return bool(read_title(node)) and any(_FACT_KEY.search(bare_key(key)) for key in node)


def _is_section_title(key: str, value: Any) -> bool:
    named = bare_key(key) in _SECTION_TITLES and isinstance(value, str)
    return named and 0 < len(value) <= _HEADING_CHARS and "<" not in value


def _lone_text(value: Any) -> str:
    """A list's item that is a text, or an object with nothing but one."""
    if isinstance(value, dict) and len(value) == 1:
        value = next(iter(value.values()))
    return value if isinstance(value, str) else ""


def _items(lines: Sequence[str]) -> Iterator[Block]:
    for line in lines:
        blocks = read_blocks(line)
        yield from [Block(blocks[0].text, item=True)] if len(blocks) == 1 else blocks
