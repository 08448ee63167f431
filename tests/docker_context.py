"""What a build of the image sees: the files that `.dockerignore` lets through.

Docker's rules (https://docs.docker.com/build/concepts/context/#dockerignore-files): the last line
that matches a path or a folder above it decides; `!` lets through, `*` stays within one folder.
"""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_PARTS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
_SPECIAL = re.compile(r"\*\*/|\*\*|\*|\?")


class Ignored:
    """The lines of a `.dockerignore`."""

    def __init__(self, text: str) -> None:
        lines = (line.strip() for line in text.splitlines())
        chosen = [line for line in lines if line and not line.startswith("#")]
        self._rules = [(_pattern(one.removeprefix("!")), one.startswith("!")) for one in chosen]

    def lets_through(self, path: str) -> bool:
        one = PurePosixPath(path)
        candidates = [str(part) for part in (one, *one.parents) if str(part) != "."]
        passes = True
        for pattern, lets_through in self._rules:
            if any(pattern.fullmatch(candidate) for candidate in candidates):
                passes = lets_through
        return passes


def _pattern(line: str) -> re.Pattern[str]:
    literal, special = _SPECIAL.split(line), _SPECIAL.findall(line)
    parts = [re.escape(literal[0])]
    for sign, following in zip(special, literal[1:], strict=True):
        parts += [_PARTS[sign], re.escape(following)]
    return re.compile("".join(parts))


def context_files(checkout: Path) -> Iterator[str]:
    """The paths of all files that a build of this checkout sees."""
    ignored = Ignored((checkout / ".dockerignore").read_text())
    for folder, folders, names in os.walk(checkout):
        # Large, and nothing in it is let through; a test says so.
        folders[:] = [name for name in folders if name not in (".venv", ".git", "__pycache__")]
        for name in names:
            path = (Path(folder) / name).relative_to(checkout).as_posix()
            if ignored.lets_through(path):
                yield path


def copy_context(checkout: Path, target: Path) -> None:
    """Do what `COPY . .` does."""
    for path in context_files(checkout):
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(checkout / path, target / path)
