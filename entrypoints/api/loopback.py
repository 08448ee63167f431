"""Addresses that only this machine can reach."""

import ipaddress

from fastapi import Request

from entrypoints.api.problems import Problem


def refuse_strange_names(request: Request) -> None:
    """For where nobody is asked for a token, since only this machine can connect. A page elsewhere
    can have its own name lead here, and read what it gets as its own: it cannot hide that name."""
    host = request.headers.get("host", "")
    # Without the port; an address with colons stands in brackets.
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if not is_loopback(name.lower()):
        raise Problem(
            403,
            f"without tokens this server answers to this machine's own address, not to {host!r}: "
            "ask it as localhost, or set PENSTOCK_API_JWT_SECRET",
        )


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
