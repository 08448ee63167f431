"""What maintenance has done, or would do."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from penstock.errors import Unmaintained


@dataclass(frozen=True, slots=True)
class Figure:
    """So many of something, and how large they are together, where that is known."""

    what: str
    count: int
    bytes: int | None = None

    def __str__(self) -> str:
        size = "" if self.bytes is None else f" ({in_short(self.bytes)})"
        return f"{self.count:,} {self.what}{size}"


@dataclass(frozen=True, slots=True)
class Part:
    """One part of maintenance."""

    name: str
    seconds: float
    figures: Sequence[Figure] = ()
    note: str = ""
    error: str | None = None

    def __str__(self) -> str:
        """One line about it."""
        said = [str(figure).removesuffix(f" {self.name}") for figure in self.figures]
        said += [text for text in (self.note, self.error and f"failed: {self.error}") if text]
        return f"{self.name}: {', '.join(said)}"


@dataclass(frozen=True, slots=True)
class Maintained:
    """All of it."""

    parts: Sequence[Part]
    dry_run: bool = False

    @property
    def failures(self) -> list[str]:
        return [f"{part.name}: {part.error}" for part in self.parts if part.error is not None]

    def raise_failures(self) -> None:
        """An error that tells all reasons, if any part failed."""
        if self.failures:
            raise Unmaintained("; ".join(self.failures))

    def as_json(self) -> dict[str, Any]:
        parts = [asdict(part) | {"seconds": round(part.seconds, 3)} for part in self.parts]
        return {"dry_run": self.dry_run, "parts": parts, "failures": self.failures}


def in_short(size: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
