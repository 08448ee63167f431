"""What a Word document keeps from its readers: runs that are hidden, by themselves or by a style.

It is where words would be put that are meant for programs and for nobody else.
"""

from collections.abc import Iterator
from typing import Any

from penstock.text.word.blocks import attribute, local_name

_OFF = ("0", "false", "off")
# As far as styles are followed to those they are based on.
_BASES = 10


def drop_hidden(root: Any, hidden_styles: frozenset[str]) -> None:
    """Take the hidden runs out of a part; the styles are those that hide."""
    for run in dict.fromkeys(_marked_runs(root)):
        run.getparent().remove(run)
    if hidden_styles:
        for run in dict.fromkeys(_styled_runs(root, hidden_styles)):
            run.getparent().remove(run)


def find_hiding_styles(styles: Any | None) -> frozenset[str]:
    """The names of the styles that hide what is written in them, or are based on one that does."""
    known = {} if styles is None else {_name(style): style for style in styles.iter("{*}style")}
    return frozenset(name for name in known if _hides(name, known))


def _hides(name: str, known: dict[str, Any]) -> bool:
    for _ in range(_BASES):
        style = known.get(name)
        if style is None:
            return False
        mark = style.find("{*}rPr/{*}vanish")
        if mark is not None:
            return _is_on(mark)
        base = style.find("{*}basedOn")
        name = "" if base is None else attribute(base, "val")
    return False


def _name(style: Any) -> str:
    return attribute(style, "styleId")


def _marked_runs(root: Any) -> Iterator[Any]:
    for mark in root.iter("{*}vanish"):
        run = mark.getparent().getparent()
        if _is_on(mark) and local_name(run) == "r":
            yield run


def _styled_runs(root: Any, styles: frozenset[str]) -> Iterator[Any]:
    for style in root.iter("{*}rStyle", "{*}pStyle"):
        if attribute(style, "val") in styles:
            owner = style.getparent().getparent()
            runs = owner.iter("{*}r") if local_name(owner) in ("r", "p") else ()
            yield from (run for run in runs if not _is_shown(run))


def _is_shown(run: Any) -> bool:
    """Whether the run says for itself that it is not hidden, whatever its style."""
    mark = run.find("{*}rPr/{*}vanish")
    return mark is not None and not _is_on(mark)


def _is_on(mark: Any) -> bool:
    return attribute(mark, "val").lower() not in _OFF
