"""The documentation's pages: their commands, links and names, to be checked against the code."""

import re
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`]+)`")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_ASSIGNMENT = re.compile(r"^[A-Z_]+=")
_REDIRECTION = re.compile(r"\s>\s*\S+")
_SEPARATORS = {";", "|", "||", "&&", "&"}


@dataclass(frozen=True)
class Page:
    """One file of the documentation."""

    path: Path

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def prose(self) -> str:
        """Without its blocks of code."""
        return _BLOCK.sub("", self.text)

    def blocks(self, language: str) -> list[str]:
        return [body for name, body in _BLOCK.findall(self.text) if name == language]

    def lines(self) -> list[str]:
        """Each line that a reader may type into a shell; what goes on over lines is one."""
        whole = "\n".join(self.blocks("bash")).replace("\\\n", " ")
        return [line for line in whole.splitlines() if split_commands(line)]

    def inline(self) -> list[str]:
        """What stands between backticks in the prose."""
        return [" ".join(found.split()) for found in _INLINE.findall(self.prose)]

    def anchors(self) -> set[str]:
        """What links may name behind a `#`, as GitHub makes it from headings."""
        without_code = _BLOCK.sub("", self.text)
        kept = [re.sub(r"[^\w\- ]", "", title.lower()) for title in _HEADING.findall(without_code)]
        return {title.replace(" ", "-") for title in kept}


@cache
def list_pages() -> tuple[Page, ...]:
    return tuple(map(Page, [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]))


def split_commands(line: str) -> list[list[str]]:
    """The commands of a line, in words; comments and settings before a command are left out."""
    lexer = shlex.shlex(_REDIRECTION.sub("", line), posix=True, punctuation_chars=";|&")
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in lexer:
        if word in _SEPARATORS:
            found.append([])
        elif found[-1] or not _ASSIGNMENT.match(word):
            found[-1].append(word)
    return [words for words in found if words]
