"""Pages from templates. All that comes from documents is escaped; templates ask no questions."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from entrypoints.dashboard.charts import stack
from entrypoints.dashboard.forms import CSRF, csrf_of
from entrypoints.dashboard.session import PREFIX, put_cookie
from entrypoints.dashboard.viewer import Viewer
from penstock import __version__
from penstock.review.corrections import describe_reason
from penstock.search.query import HIT_END, HIT_START, Hit

_SAID = "penstock_said"
_LONGEST_SAID = 3000
# Enough to find the place again.
_FRAGMENT_CHARS = 80
_FOLDER = Path(__file__).parent
STATIC = _FOLDER / "static"

environment = Environment(
    loader=FileSystemLoader(_FOLDER / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def show(
    request: Request, template: str, viewer: Viewer | None, *, status: int = 200, **values: Any
) -> HTMLResponse:
    """A whole page."""
    said = request.cookies.get(_SAID)
    body = environment.get_template(template).render(
        viewer=viewer,
        csrf=csrf_of(request),
        path=request.url.path,
        said=unquote(said) if said else None,
        **values,
    )
    response = HTMLResponse(body, status)
    if request.cookies.get(CSRF) != csrf_of(request):
        put_cookie(response, CSRF, csrf_of(request), secure=is_secure(request))
    if said:
        response.delete_cookie(_SAID, path=PREFIX)
    return response


def render_part(template: str, **values: Any) -> str:
    """A piece of a page, for one that is open already."""
    return environment.get_template(template).render(**values)


def go_to(request: Request, path: str, said: str) -> RedirectResponse:
    """After a change: to the page that shows it, which says what was done."""
    response = RedirectResponse(f"{PREFIX}{path}", 303)
    # What is not ASCII gets longer, and browsers drop what is too long.
    while len(shown := quote(said)) > _LONGEST_SAID:
        said = said[: len(said) // 2] + "…"
    put_cookie(response, _SAID, shown, secure=is_secure(request), max_age=60)
    return response


def is_secure(request: Request) -> bool:
    return request.url.scheme == "https"


def _time(value: datetime | str | None) -> Markup:
    """In UTC; a script shows it in the reader's zone."""
    if value is None:
        return Markup("–")
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    utc = moment.astimezone(UTC)
    shown = f"{utc:%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(utc.isoformat(), shown, shown)


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02} min"
    return f"{hours // 24} d {hours % 24} h"


def _number(value: float) -> str:
    # With narrow spaces: a comma is a decimal point to half of the readers.
    return f"{value:,}".replace(",", "\u202f")


def _money(usd: float) -> str:
    return f"${usd:.2f}" if usd >= 1 or usd == 0 else f"${usd:.4f}"


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def _marked(snippet: str) -> Markup:
    """Hits of a search, marked."""
    shown = escape(snippet)
    return Markup(shown.replace(HIT_START, Markup("<mark>")).replace(HIT_END, Markup("</mark>")))


def _fragment(hit: Hit) -> str:
    """Behind the address of a document: browsers open it at the passage."""
    passage = hit.passage or {"start": 0}
    if not passage["start"]:
        return ""
    first_line = passage["text"].partition("\n")[0]
    words = first_line[:_FRAGMENT_CHARS].rpartition(" ")[0] or first_line[:_FRAGMENT_CHARS]
    # A dash is syntax there.
    return f"#:~:text={quote(words, safe='').replace('-', '%2D')}"


def _web_address(url: str | None) -> str | None:
    """An address to follow; one that would run a script is none."""
    given = (url or "").strip()
    return given if given.lower().startswith(("https://", "http://")) else None


environment.filters.update(
    time=_time,
    duration=_duration,
    number=_number,
    money=_money,
    reason=describe_reason,
    percent=_percent,
    marked=_marked,
    fragment=_fragment,
    web_address=_web_address,
)
environment.globals.update(prefix=PREFIX, version=__version__, stack=stack)
