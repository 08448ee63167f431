"""Elements by what becomes of their text: its own line, no line at all, or part of a line."""

HEADINGS = {f"h{level}": level for level in range(1, 7)}
# Each starts a line of its own, and ends it.
BLOCKS = frozenset(
    (
        *(*HEADINGS, "address", "article", "aside", "blockquote", "body", "br", "caption", "dd"),
        *("details", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form"),
        *("header", "hr", "html", "legend", "li", "main", "nav", "ol", "p", "pre", "section"),
        *("summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul"),
    )
)
# What is inside was written for programs, or is shown only when somebody asks for it.
UNREAD = frozenset(
    (
        *("audio", "canvas", "head", "iframe", "noscript", "object", "script", "select", "style"),
        *("svg", "template", "textarea", "video"),
    )
)
