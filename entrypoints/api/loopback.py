"""Checks for a server without tokens: callers on this machine only, no pages of other sites."""

import ipaddress
from collections.abc import Collection
from functools import lru_cache

from starlette.datastructures import Headers

from entrypoints.api.problems import Problem

_READING = ("GET", "HEAD", "OPTIONS")


def refuse_strangers(method: str, headers: Headers, allowed: Collection[str] = ()) -> None:
    """All that is checked of a request to a server without tokens; `allowed` are further origins
    whose pages may change something."""
    refuse_unknown_hosts(headers)
    if method not in _READING:
        refuse_other_sites(headers, allowed)


def refuse_unknown_hosts(headers: Headers) -> None:
    """Without tokens only this machine can connect. But a page elsewhere can have its own host name
    resolve to this machine (DNS rebinding), and read the answers: the Host header shows it."""
    host = headers.get("host", "")
    # Without the port; an address with colons stands in brackets.
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if not is_loopback(name.lower()):
        raise Problem(
            403,
            f"without tokens this server accepts only local host names, not {host!r}: "
            "use localhost, or set PENSTOCK_API_JWT_SECRET",
        )


def refuse_other_sites(headers: Headers, allowed: Collection[str] = ()) -> None:
    """For requests that change something. A page of another site cannot read our answer, but a
    browser would send its request, with headers that name the site."""
    origin = headers.get("origin")
    if origin in allowed:
        return
    site = headers.get("sec-fetch-site", "same-origin")
    elsewhere = origin is not None and origin.partition("://")[2] != headers.get("host")
    if site not in ("same-origin", "none") or elsewhere:
        raise Problem(
            403,
            "the request comes from another site and was refused",
        )


@lru_cache(maxsize=64)
def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
