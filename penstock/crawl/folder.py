"""A folder as a source: every file below it, and a single file as the smallest such source."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from penstock.crawl.filename import absolute_path, escape_undecodable
from penstock.crawl.listing import Listed
from penstock.errors import ListingFailed


@dataclass(frozen=True, slots=True)
class SingleFileListing:
    """One local file."""

    path: Path
    kind: str = field(default="file", init=False)

    @property
    def name(self) -> str:
        return escape_undecodable(str(absolute_path(self.path)))

    @property
    def location(self) -> str:
        return self.name

    def list(self) -> Iterator[Listed]:
        path = absolute_path(self.path)
        yield Listed(escape_undecodable(path.name), path.as_uri(), path=path)


@dataclass(frozen=True, slots=True)
class FolderListing:
    """All files below a folder, in a fixed order; hidden ones (leading dot) are left out."""

    path: Path
    kind: str = field(default="folder", init=False)

    @property
    def name(self) -> str:
        return escape_undecodable(str(absolute_path(self.path)))

    @property
    def location(self) -> str:
        return self.name

    def list(self) -> Iterator[Listed]:
        root = absolute_path(self.path)
        for relative in _Walk(root).files():
            path = root / relative
            yield Listed(escape_undecodable(relative), path.as_uri(), path=path)


class _Walk:
    """One pass over a tree that enters each real folder at most once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._real_root = os.path.realpath(root)
        self._entered: set[tuple[int, int]] = set()

    def files(self) -> Iterator[str]:
        """Paths relative to the root. A stack, because trees may be deeper than Python recurses."""
        stack = [self._enter("")]
        while stack:
            for relative, is_folder in stack[-1]:
                if is_folder:
                    stack.append(self._enter(relative + "/"))
                    break
                yield relative
            else:
                stack.pop()

    def _enter(self, prefix: str) -> Iterator[tuple[str, bool]]:
        folder = self._root / prefix
        try:
            status = folder.stat()
            if (status.st_dev, status.st_ino) in self._entered:
                return iter(())
            self._entered.add((status.st_dev, status.st_ino))
            entries = self._sorted_entries(folder)
        except OSError as error:
            raise ListingFailed(
                f"could not list the folder {escape_undecodable(str(folder))}: "
                f"{error.strerror or error}; make it readable, or move it out of the source"
            ) from error
        return ((prefix + name, is_folder) for name, is_folder in entries)

    def _sorted_entries(self, folder: Path) -> list[tuple[str, bool]]:
        # Plain tuples: a scandir entry holds several times their memory until it is used.
        with os.scandir(folder) as entries:
            visible = (entry for entry in entries if not entry.name.startswith("."))
            return sorted(
                (entry.name, _is_folder(entry)) for entry in visible if not self._repeats(entry)
            )

    def _repeats(self, entry: "os.DirEntry[str]") -> bool:
        """A link to a folder that this walk lists under its own name anyway."""
        if not entry.is_symlink() or not _is_folder(entry):
            return False
        real = os.path.realpath(entry.path)
        if real == self._real_root:
            return True
        if not real.startswith(self._real_root.rstrip("/") + "/"):
            return False
        inside = os.path.relpath(real, self._real_root)
        return not any(part.startswith(".") for part in inside.split("/"))


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        # A link that cannot be followed is one broken document, not a broken listing.
        return False
