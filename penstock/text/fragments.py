"""Values of feeds and data files, which are often pieces of HTML."""

import html
import re

from penstock.text.html.page import visible_text

_TAGS = (
    r"</(p|div|li|ul|ol|a|b|i|strong|em|span|h[1-6]|td|tr|table|blockquote|section)\s*>"
    r"|<(br|p|hr)\s*/?>"
)
_TAG = re.compile(_TAGS, re.IGNORECASE)
_ESCAPED_TAG = re.compile(_TAGS.replace("<", "&lt;").replace(">", "&gt;"), re.IGNORECASE)


def readable_value(value: str) -> str:
    """The value as a reader would see it; what is no HTML stays as it is."""
    if "<" not in value and "&lt;" not in value:
        return value
    if _ESCAPED_TAG.search(value) and not _TAG.search(value):
        value = html.unescape(value)
    return visible_text(value) if _TAG.search(value) else value
