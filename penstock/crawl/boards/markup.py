"""Descriptions from strangers, made fit to stand inside a page of ours."""

import html
import re

_TAG = re.compile(r"<[a-zA-Z/]")
# One that is never closed reaches to the end, which also keeps the search linear.
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
# These bring data or styles of their own, or swallow the rest of the page.
_UNWANTED = (
    *("base", "body", "embed", "form", "frameset", "head", "html", "iframe", "link", "main"),
    *("math", "meta", "noembed", "noframes", "noscript", "object", "plaintext", "script", "style"),
    *("svg", "template", "textarea", "title", "xmp"),
)
_REFUSED_TAG = re.compile(rf"<(?=/?(?:{'|'.join(_UNWANTED)})(?![a-z0-9-])|[!?])", re.IGNORECASE)


def tame_html(text: str) -> str:
    """The same HTML without comments, and with unwanted tags shown instead of obeyed."""
    return _REFUSED_TAG.sub("&lt;", _COMMENT.sub("", text)).strip()


def unescape_html(text: str) -> str:
    """HTML that came escaped once more, as it was before; other HTML as it is."""
    return text if _TAG.search(text) else html.unescape(text)


def paragraphs(text: str) -> str:
    """Plain text as HTML."""
    return "\n".join(f"<p>{html.escape(line.strip())}</p>" for line in text.splitlines() if line)
