"""What a PDF page is made of, told by pdfium without reading it: paths, forms, how much.

Objects are handled by their address: pypdfium2's own bindings make a typed pointer of each, at
twice the price of the call, and every page of every document pays for these.
"""

import ctypes
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice, repeat
from typing import Any, NamedTuple

PAGE_WEIGHT = 20_000
"""Characters, objects and drawn segments; a page of more is a drawing, not a table."""

_SAMPLED_OBJECTS = 512
_FORM_DEPTH = 3
# FPDF_PAGEOBJ_PATH and FPDF_PAGEOBJ_FORM in fpdf_edit.h.
_PATH = 2
_FORM = 5


class Calls(NamedTuple):
    """pdfium's functions, each taking and giving addresses."""

    count_objects: Callable[[int], int]
    get_object: Callable[[int, int], int]
    count_form_objects: Callable[[int], int]
    get_form_object: Callable[[int, int], int]
    get_type: Callable[[int], int]
    count_segments: Callable[[int], int]
    get_bounds: Callable[[int, int, int, int, int], int]


@cache
def bind_calls() -> Calls:
    from pypdfium2 import raw  # type: ignore[import-untyped]

    address, number = ctypes.c_void_p, ctypes.c_int
    count = ctypes.PYFUNCTYPE(number, address)
    get = ctypes.PYFUNCTYPE(address, address, number)
    bounds = ctypes.PYFUNCTYPE(number, *repeat(address, 5))
    return Calls(
        count(address_of(raw.FPDFPage_CountObjects)),
        get(address_of(raw.FPDFPage_GetObject)),
        count(address_of(raw.FPDFFormObj_CountObjects)),
        get(address_of(raw.FPDFFormObj_GetObject)),
        count(address_of(raw.FPDFPageObj_GetType)),
        count(address_of(raw.FPDFPath_CountSegments)),
        bounds(address_of(raw.FPDFPageObj_GetBounds)),
    )


def address_of(pointer: Any) -> int:
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


def find_paths(page: Any) -> list[int]:
    """The page's paths, also those of its forms; none when a sample of many objects shows none."""
    calls, address = bind_calls(), address_of(page)
    count = calls.count_objects(address)
    step = 1 + count // _SAMPLED_OBJECTS
    if step > 1 and not _find_drawn(address, range(0, count, step)):
        return []
    found = (_paths_of(*drawn) for drawn in _find_drawn(address, range(count)))
    return list(islice((path for paths in found for path in paths), PAGE_WEIGHT))


def weigh_drawing(page: Any) -> int:
    """How many objects and segments are drawn, also inside forms; counted to the limit only."""
    calls, address = bind_calls(), address_of(page)
    weight = count = calls.count_objects(address)
    if count > PAGE_WEIGHT:
        return count
    for kind, drawn in _find_drawn(address, range(count)):
        for path in _paths_of(kind, drawn):
            weight += 1 + calls.count_segments(path)
            if weight > PAGE_WEIGHT:
                return weight
    return weight


def _find_drawn(page: int, indices: range) -> list[tuple[int, int]]:
    """Those of the page's objects that are paths or forms, with their types."""
    calls = bind_calls()
    items = list(map(calls.get_object, repeat(page), indices))
    kinds = map(calls.get_type, items)
    return [pair for pair in zip(kinds, items, strict=True) if pair[0] in (_PATH, _FORM)]


def _paths_of(kind: int, item: int, depth: int = _FORM_DEPTH) -> Iterator[int]:
    """The path itself, or all paths of a form."""
    if kind == _PATH:
        yield item
    elif kind == _FORM and depth:
        calls = bind_calls()
        for index in range(calls.count_form_objects(item)):
            inside = calls.get_form_object(item, index)
            yield from _paths_of(calls.get_type(inside), inside, depth - 1)
