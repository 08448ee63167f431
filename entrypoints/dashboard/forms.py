"""Forms that change something, accepted only from this server's own pages (CSRF)."""

import hmac
import secrets
from typing import Annotated

from fastapi import Depends, Request
from starlette.datastructures import FormData

from entrypoints.api.loopback import refuse_other_sites
from entrypoints.api.problems import Problem
from penstock.store.columns import storable

CSRF = "penstock_csrf"
_FIELDS = 50


def csrf_of(request: Request) -> str:
    """The secret that a browser has in a cookie and pages repeat in their forms."""
    known: str | None = request.cookies.get(CSRF)
    if known and len(known) >= 32:
        return known
    if not hasattr(request.state, "csrf"):
        request.state.csrf = secrets.token_urlsafe(32)
    made: str = request.state.csrf
    return made


async def read_form(request: Request) -> FormData:
    """The form, if one of our own pages sent it."""
    refuse_other_sites(request.headers)
    form = await request.form(max_files=0, max_fields=_FIELDS)
    known, given = request.cookies.get(CSRF, ""), str(form.get("csrf", ""))
    if not known or not hmac.compare_digest(known.encode(), given.encode()):
        raise Problem(403, "the form has expired: go back, reload the page and try again")
    return form


def text_of(form: FormData, name: str) -> str | None:
    """A field of the form; None if it is empty."""
    given = str(storable(str(form.get(name, "")))).strip()
    return given or None


def number_of(form: FormData, name: str) -> int:
    given = text_of(form, name) or ""
    if not (given.isascii() and given.isdecimal() and len(given) < 19):
        raise Problem(400, f"{name} is not a number: reload the page")
    return int(given)


Form = Annotated[FormData, Depends(read_form)]
