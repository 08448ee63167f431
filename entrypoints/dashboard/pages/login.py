"""Signing in with a token, signing out, and choosing a tenant where none is prescribed."""

import time
from typing import Annotated
from urllib.parse import quote

import jwt
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from entrypoints.api.problems import Problem
from entrypoints.api.tokens import TokenReader, is_tenant_name
from entrypoints.dashboard.forms import CSRF, Form, text_of
from entrypoints.dashboard.rendering import go_to, is_secure, show
from entrypoints.dashboard.session import PREFIX, SESSION, put_cookie
from entrypoints.dashboard.viewer import TENANT, Reader

router = APIRouter()
# Browsers drop cookies of more than 4096 bytes, name and all, without a word.
LONGEST_TOKEN = 3800
_TOO_LONG = f"browsers keep at most about {LONGEST_TOKEN}: ask for one with fewer claims"


@router.get("/login")
async def ask_for_token(request: Request, next: Annotated[str, Query()] = "/runs") -> HTMLResponse:
    return show(request, "login.html", None, next=_own_path(next), wrong=None)


@router.post("/login")
async def sign_in(request: Request, form: Form) -> Response:
    """The token is checked here, kept by the browser, and checked again with every request."""
    wanted = _own_path(text_of(form, "next") or "")
    reader: TokenReader | None = request.app.state.tokens
    if reader is None:
        return RedirectResponse(f"{PREFIX}{wanted}", 303)
    token = (text_of(form, "token") or "").removeprefix("Bearer ").strip()
    try:
        reader.read(f"Bearer {token}")
        if len(token) > LONGEST_TOKEN:
            raise Problem(401, f"the token has {len(token)} characters; {_TOO_LONG}")
    except Problem as problem:
        return show(request, "login.html", None, status=401, next=wanted, wrong=str(problem.detail))
    response = RedirectResponse(f"{PREFIX}{wanted}", 303)
    lifetime = max(1, int(_expiry(token) - time.time()))
    put_cookie(response, SESSION, token, secure=is_secure(request), max_age=lifetime)
    # A fresh one: the old one may have been set by another site.
    response.delete_cookie(CSRF, path=PREFIX)
    return response


@router.post("/logout")
async def sign_out(request: Request, form: Form) -> RedirectResponse:
    del form
    response = go_to(request, "/login", "Signed out.")
    response.delete_cookie(SESSION, path=PREFIX)
    return response


@router.post("/tenant")
async def choose_tenant(request: Request, viewer: Reader, form: Form) -> RedirectResponse:
    chosen = text_of(form, "tenant") or ""
    if viewer.bound:
        raise Problem(403, f"your token is for tenant {viewer.tenant_id}")
    if not is_tenant_name(chosen):
        raise Problem(400, "name a tenant, with at most 200 characters")
    response = go_to(request, "/runs", f"Switched to tenant {chosen}.")
    put_cookie(response, TENANT, quote(chosen), secure=is_secure(request))
    return response


def _own_path(wanted: str) -> str:
    """A page of ours: who follows a link to the sign-in must not end up elsewhere."""
    safe = wanted.startswith("/") and not wanted.startswith("//") and "\\" not in wanted
    return wanted if safe else "/runs"


def _expiry(token: str) -> float:
    claims = jwt.decode(token, options={"verify_signature": False})
    return float(claims["exp"])
