"""Figures as shapes: templates draw them as SVG, without a style or a script of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from penstock.runs.costs import CostLine, FallbackLine
from penstock.runs.timeline import Timeline

WIDTH, HEIGHT = 600.0, 120.0


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar that is 100 wide."""

    name: str
    count: int
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Curve:
    name: str
    points: str


@dataclass(frozen=True, slots=True)
class Throughput:
    """Items done over the time of a run, a curve for each stage; and how long they took."""

    curves: list[Curve]
    most_per_second: float
    latencies: list[Curve]
    most_seconds: float
    begun: datetime
    ended: datetime
    latency: dict[str, dict[float, float]]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a chart, from `y` down to its floor."""

    label: str
    value: str
    x: float
    y: float
    width: float
    height: float


def stack(counts: Mapping[str, int]) -> list[Segment]:
    """All counts side by side, and none that is not nothing too thin to be seen."""
    total = sum(counts.values())
    shown = {name: count for name, count in counts.items() if count}
    widths = {name: max(count / total * 100, 1.0) for name, count in shown.items()}
    scale = 100 / sum(widths.values()) if widths else 0.0
    segments, x = [], 0.0
    for name, width in widths.items():
        segments.append(Segment(str(name), shown[name], round(x, 2), round(width * scale, 2)))
        x += width * scale
    return segments


def draw_timeline(timeline: Timeline) -> Throughput:
    most = max((max(counts, default=0) for counts in timeline.done.values()), default=0)
    curves = [
        Curve(str(stage), _points(counts, most))
        for stage, counts in timeline.done.items()
        if any(counts)
    ]
    latency = {str(stage): found for stage, found in timeline.latency_seconds.items() if found}
    per_second = most / timeline.slice_seconds if timeline.slice_seconds else 0.0
    medians = {stage: _carried(found) for stage, found in timeline.median_seconds.items()}
    longest = max((max(found, default=0.0) for found in medians.values()), default=0.0)
    latencies = [
        Curve(str(stage), _points(found, longest)) for stage, found in medians.items() if any(found)
    ]
    return Throughput(
        curves, per_second, latencies, longest, timeline.begun, timeline.ended, latency
    )


def _carried(found: Sequence[float | None]) -> list[float]:
    """Where nothing was completed, what was last seen: a line without holes."""
    carried, last = [], next((one for one in found if one is not None), 0.0)
    for one in found:
        last = last if one is None else one
        carried.append(last)
    return carried


def _points(values: Sequence[float], most: float) -> str:
    step = WIDTH / max(1, len(values) - 1)
    return " ".join(
        f"{number * step:.1f},{HEIGHT - (value / most * HEIGHT if most else 0):.1f}"
        for number, value in enumerate(values)
    )


def draw_days(lines: Sequence[CostLine], days: int, today: date) -> list[Column]:
    """What was spent each day, oldest first."""
    spent: dict[date, float] = {}
    for line in lines:
        spent[line.day] = spent.get(line.day, 0.0) + line.cost_usd
    values = {day: spent.get(day, 0.0) for day in _days(days, today)}
    return _columns(values, max(values.values(), default=0.0), "${:.4f}")


def draw_rates(lines: Sequence[FallbackLine], days: int, today: date) -> list[Column]:
    """The share of answers that the fallback model had to give, of at most all."""
    rates = {line.day: line.rate for line in lines}
    values = {day: rates.get(day, 0.0) for day in _days(days, today)}
    return _columns(values, 1.0, "{:.1%}")


def _days(days: int, today: date) -> list[date]:
    return [today - timedelta(days=back) for back in reversed(range(days))]


def _columns(values: Mapping[date, float], most: float, number_format: str) -> list[Column]:
    room = WIDTH / max(1, len(values))
    found = []
    for number, (day, value) in enumerate(values.items()):
        height = value / most * HEIGHT if most else 0.0
        found.append(
            Column(
                day.isoformat(),
                number_format.format(value),
                round(number * room, 1),
                round(HEIGHT - height, 1),
                round(room * 0.8, 1),
                round(height, 1),
            )
        )
    return found
