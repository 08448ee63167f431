"""Makes folders of distinct documents: web pages like those of careers sites and blogs, copies of
real pages that differ in one paragraph, and short texts."""

import gzip
import os
import random
from collections.abc import Sequence
from pathlib import Path

# Without our prefix: a name that begins with PENSTOCK_ is taken for a setting.
REAL_PAGES_VARIABLE = "BENCH_PAGES"

_SUBJECTS = ("turbine", "gate", "sluice", "weir", "reservoir", "inflow", "governor", "spillway")
_VERBS = ("controls", "measures", "predicts", "protects", "explains", "delays", "repairs", "tests")
_THINGS = ("Python", "PostgreSQL", "Kubernetes", "telemetry", "budgets", "safety", "inspections")
_PLACES = ("Inverness", "Tromsø", "Bergen", "Grenoble", "Graz", "Porto", "Vigo", "Ljubljana")


def write_pages(folder: Path, count: int, *, seed: int) -> None:
    """`count` distinct pages.

    About 120 kB, 770 elements and 4,400 characters of article each: the middle of 91 real news and
    blog pages (117 kB, 769, 4,437). Those are messier, and cost somewhat more to parse.
    """
    folder.mkdir(parents=True)
    for number in range(count):
        chosen = random.Random(f"{seed}-{number}")
        (folder / f"page-{number:06}.html").write_text(_page(number, chosen), encoding="utf-8")


def write_texts(folder: Path, count: int, *, seed: int) -> None:
    """`count` distinct plain texts of about 2 kB."""
    folder.mkdir(parents=True)
    for number in range(count):
        chosen = random.Random(f"text-{seed}-{number}")
        text = "\n\n".join((f"Note no. {number}", *(_paragraph(chosen) for _ in range(4))))
        (folder / f"note-{number:06}.txt").write_text(text, encoding="utf-8")


def given_pages() -> Path | None:
    """The folder of real pages that the environment names."""
    named = os.environ.get(REAL_PAGES_VARIABLE)
    return Path(named) if named else None


def read_real_pages(folder: Path) -> list[bytes]:
    """All `.html` and `.html.gz` files below a folder."""
    plain = [path.read_bytes() for path in sorted(folder.rglob("*.html"))]
    packed = [gzip.decompress(path.read_bytes()) for path in sorted(folder.rglob("*.html.gz"))]
    if not plain and not packed:
        raise SystemExit(f"no .html or .html.gz files below {folder}")
    return plain + packed


def write_copies(folder: Path, pages: Sequence[bytes], count: int, *, seed: int) -> None:
    """`count` pages, each one of those given with a last paragraph of its own."""
    folder.mkdir(parents=True)
    for number in range(count):
        chosen = random.Random(f"copy-{seed}-{number}")
        own = f"<p>{_paragraph(chosen)}</p>".encode()
        page = _with_last_paragraph(pages[number % len(pages)], own)
        (folder / f"page-{number:06}.html").write_bytes(page)


def _with_last_paragraph(page: bytes, paragraph: bytes) -> bytes:
    end = page.lower().rfind(b"</body>")
    return page + paragraph if end < 0 else page[:end] + paragraph + page[end:]


def _page(number: int, chosen: random.Random) -> str:
    title = f"{_phrase(chosen).capitalize()}, no. {number}"
    paragraphs = "\n".join(f"<p>{_paragraph(chosen)}</p>" for _ in range(chosen.randint(8, 12)))
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>{_styles()}</style><script>window.state = {{{_state(chosen)}}};</script></head>
<body class="page"><header class="site"><nav>{_menu()}</nav></header>
<div class="wrap"><main><article class="story"><h1>{title}</h1>
<div class="meta"><span class="by">By A. Keeper</span> <time>12 May 2024</time></div>
{paragraphs}</article></main><aside>{_teasers(chosen)}</aside></div>
<footer class="site">{_menu()}<p>© Millrace. All rights reserved.</p></footer></body></html>
"""


def _styles() -> str:
    return "".join(f".c{i}{{margin:{i}px;padding:{i % 9}px;color:#{i:06x}}}" for i in range(700))


def _state(chosen: random.Random) -> str:
    return ",".join(f'"key{i}":"{chosen.random()}"' for i in range(1100))


def _menu() -> str:
    links = (f'<li class="c{i}"><a href="/{p}/{i}">{p} {i}</a></li>' for i, p in _menu_places())
    return f"<ul>{''.join(links)}</ul>"


def _menu_places() -> list[tuple[int, str]]:
    return [(number, _PLACES[number % len(_PLACES)]) for number in range(45)]


def _teasers(chosen: random.Random) -> str:
    return "\n".join(_teaser(chosen, number) for number in range(70))


def _teaser(chosen: random.Random, number: int) -> str:
    words = _phrase(chosen)
    track = f'data-track="teaser-{number}-{chosen.random()}"'
    return f"""<div class="card card--wide c{number}" id="card-{number}" {track}>
<div class="card__image lazyload"><img src="/images/{number}.jpg" alt="{words}" width="320"></div>
<div class="card__body u-padding"><h4 class="card__title">
<a class="card__link" href="/news/{words.replace(" ", "-")}">{words}</a></h4>
<span class="card__tag">{chosen.choice(_THINGS)}</span>
<p class="card__teaser">{_sentence(chosen)}</p></div></div>"""


def _paragraph(chosen: random.Random) -> str:
    return " ".join(_sentence(chosen) for _ in range(chosen.randint(4, 7)))


def _sentence(chosen: random.Random) -> str:
    thing, place = chosen.choice(_THINGS), chosen.choice(_PLACES)
    return f"The {_phrase(chosen)} with {thing} in {place}."


def _phrase(chosen: random.Random) -> str:
    first, second = chosen.sample(_SUBJECTS, 2)
    return f"{first} {chosen.choice(_VERBS)} the {second} of station {chosen.randint(1, 99999)}"
