"""What a terminal must not get: titles and texts come from strangers."""

import re

# What a terminal obeys instead of showing it: control characters but for tabs and new lines, and
# those that turn the direction of what follows.
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_REPLACEMENT = "\ufffd"


def as_text(text: str) -> str:
    """The same, with what a terminal would obey replaced."""
    return OBEYED.sub(_REPLACEMENT, text)
