"""How often a value is right that an extractor is so sure of: curves fitted on labelled documents.

`python -m bench.calibration` fits them and writes `calibration.json`. An extractor, or a field of
it, without a curve is taken at its word.
"""

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TypeAlias

Curve: TypeAlias = Sequence[tuple[float, float]]
"""Raw confidences, rising, each with the share of values that were right."""
Curves: TypeAlias = Mapping[str, Mapping[str, Curve]]
"""By extractor (`rules`, or the name of a model), then by `profile.field`."""

FILE = "calibration.json"
# As many values, right as often as all are, are added to each step of a curve: few say little.
_PRIOR_VALUES = 4.0


@cache
def read_curves() -> Curves:
    """The curves that come with this version."""
    found: Curves = json.loads(files(__package__).joinpath(FILE).read_text(encoding="utf-8"))
    return found


def calibrate(extractor: str, profile: str, field: str, raw: float) -> float:
    """The share of right values among those that this extractor is so sure of."""
    curve = read_curves().get(extractor, {}).get(f"{profile}.{field}")
    return raw if curve is None else apply_curve(curve, raw)


def apply_curve(curve: Curve, raw: float) -> float:
    """The height of the curve, straight between its points and level beyond them."""
    place = bisect_left(curve, raw, key=lambda point: point[0])
    if place == 0:
        return curve[0][1]
    if place == len(curve):
        return curve[-1][1]
    (low, under), (high, above) = curve[place - 1], curve[place]
    return under + (above - under) * (raw - low) / (high - low)


def fit_curve(judged: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The rising curve through pairs of a raw confidence and how right the value was, 0 or 1.

    Isotonic regression: neighbours that would fall are put together until the steps rise.
    """
    overall = (sum(right for _, right in judged) + 1) / (len(judged) + 2)
    by_raw: dict[float, list[float]] = {}
    for raw, right in judged:
        by_raw.setdefault(raw, []).append(right)
    # Of each step: the sums of raw confidences and of right values, and how many there are.
    steps: list[tuple[float, float, float]] = []
    for raw, rights in sorted(by_raw.items()):
        steps.append((raw * len(rights), sum(rights), float(len(rights))))
        while len(steps) > 1 and _share(steps[-2], overall) >= _share(steps[-1], overall):
            last, before = steps.pop(), steps.pop()
            steps.append((last[0] + before[0], last[1] + before[1], last[2] + before[2]))
    return [(round(step[0] / step[2], 3), round(_share(step, overall), 3)) for step in steps]


def _share(step: tuple[float, float, float], overall: float) -> float:
    """Drawn towards what all values have in common, the more the fewer there are."""
    _, right, count = step
    return (right + overall * _PRIOR_VALUES) / (count + _PRIOR_VALUES)
