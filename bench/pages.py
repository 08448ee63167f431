"""Makes folders of distinct web pages that look like what careers sites and blogs serve."""

import random
from pathlib import Path

_SUBJECTS = ("turbine", "gate", "sluice", "weir", "reservoir", "inflow", "governor", "spillway")
_VERBS = ("controls", "measures", "predicts", "protects", "explains", "delays", "repairs", "tests")
_THINGS = ("Python", "PostgreSQL", "Kubernetes", "telemetry", "budgets", "safety", "inspections")
_PLACES = ("Inverness", "Tromsø", "Bergen", "Grenoble", "Graz", "Porto", "Vigo", "Ljubljana")


def write_pages(folder: Path, count: int, *, seed: int = 7) -> None:
    """`count` pages of about 25 kB, each with a frame, an article and some clutter."""
    folder.mkdir(parents=True)
    for number in range(count):
        chosen = random.Random(f"{seed}-{number}")
        (folder / f"page-{number:06}.html").write_text(_page(number, chosen), encoding="utf-8")


def _page(number: int, chosen: random.Random) -> str:
    title = f"{_phrase(chosen).capitalize()}, no. {number}"
    paragraphs = "\n".join(f"<p>{_paragraph(chosen)}</p>" for _ in range(chosen.randint(14, 22)))
    teasers = "\n".join(_teaser(chosen) for _ in range(40))
    links = "".join(f'<li><a href="/{place}">{place}</a></li>' for place in _PLACES)
    rules = "".join(f".c{i}{{margin:{i}px;padding:{i}px;color:#{i:06x}}}" for i in range(120))
    state = ",".join(f'"k{i}":"{chosen.random()}"' for i in range(120))
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>{rules}</style><script>var state = {{{state}}};</script></head>
<body><header><nav><ul>{links}</ul></nav></header>
<main><article><h1>{title}</h1>{paragraphs}</article></main>
<aside><ul>{teasers}</ul></aside>
<footer><p>© Millrace. All rights reserved.</p></footer></body></html>
"""


def _paragraph(chosen: random.Random) -> str:
    return " ".join(_sentence(chosen) for _ in range(chosen.randint(4, 7)))


def _sentence(chosen: random.Random) -> str:
    year, thing, place = chosen.randint(1990, 2026), chosen.choice(_THINGS), chosen.choice(_PLACES)
    return f"In {year} the {_phrase(chosen)} with {thing} in {place}."


def _phrase(chosen: random.Random) -> str:
    first, second = chosen.sample(_SUBJECTS, 2)
    return f"{first} {chosen.choice(_VERBS)} the {second} of station {chosen.randint(1, 99999)}"


def _teaser(chosen: random.Random) -> str:
    words = _phrase(chosen)
    address = f"/news/{words.replace(' ', '-')}"
    return f'<li class="c{chosen.randint(0, 119)}"><a href="{address}">{words}</a></li>'
