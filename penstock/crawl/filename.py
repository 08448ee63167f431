"""File names as text that every database can store, without two names becoming one."""

import os
import re
from pathlib import Path

# Python shows a byte that is not UTF-8 as a lone surrogate, which no database accepts.
_UNDECODABLE = re.compile("[\udc80-\udcff]")
_LOOKS_ESCAPED = re.compile("%(?=25|[89A-F][0-9A-F])")


def absolute_path(path: Path) -> Path:
    """The path from the root. Links stay in it, so that a moved link keeps its source's name."""
    return Path(os.path.abspath(path))  # noqa: PTH100 (resolve() would follow the links)


def escape_undecodable(name: str) -> str:
    """Write bytes that are not UTF-8 as `%E9`; any other name stays as it is, in its own form.

    A per cent sign that would read as such an escape becomes `%25`, so names never collide.
    """
    literal = _LOOKS_ESCAPED.sub("%25", name)
    return _UNDECODABLE.sub(lambda found: f"%{ord(found[0]) - 0xDC00:02X}", literal)
