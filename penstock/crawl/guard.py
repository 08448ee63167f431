"""Keeps the crawler away from addresses that only this machine's network can reach."""

import ipaddress
import socket

import httpx

from penstock.crawl.url import parse_url
from penstock.errors import DocumentFault, ErrorClass

_DEFAULT_PORTS = {"http": 80, "https": 443}
# All of public IPv6 lies here. What lies outside is local, or carries an IPv4 address inside
# (mapped, compatible, NAT64) and would slip a private one past the check; 6to4 does so within.
_PUBLIC_IPV6 = ipaddress.IPv6Network("2000::/3")
_SIX_TO_FOUR = ipaddress.IPv6Network("2002::/16")


def check_url(url: str, *, allow_private: bool) -> None:
    """Refuse a URL that is not http(s) or whose host has an address that is not public."""
    parsed = require_web_url(url)
    port = parsed.port or _DEFAULT_PORTS[parsed.scheme]
    try:
        checked_addresses(parsed.raw_host.decode(), port, allow_private=allow_private)
    except OSError as error:
        message = f"the host {parsed.host} has no address: {error.strerror or error}"
        raise DocumentFault(ErrorClass.UNAVAILABLE, message) from error


def require_web_url(url: str) -> httpx.URL:
    """Refuse what is not http(s) before anything is asked of the network."""
    parsed = parse_url(url)
    if parsed is None:
        raise DocumentFault(ErrorClass.FORBIDDEN, f"{url!r} is not a valid http or https URL")
    return parsed


def checked_addresses(host: str, port: int, *, allow_private: bool) -> list[str]:
    """The host's addresses, every one of them allowed. Raises OSError when it has none.

    One private address among public ones refuses the host: nobody publishes such a mixture
    with good intentions.
    """
    addresses = resolve_host(host, port)
    for address in addresses:
        if not allow_private and not is_public(address):
            raise DocumentFault(
                ErrorClass.FORBIDDEN,
                f"the host {host} has the address {address}, which is not public; set "
                "PENSTOCK_ALLOW_PRIVATE_ADDRESSES=true if the crawler may go there",
            )
    return addresses


def resolve_host(host: str, port: int) -> list[str]:
    """All addresses of a host, in the order the system prefers."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"{host} is not a valid host name") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_public(address: str) -> bool:
    """Whether an IP address can be reached from anywhere."""
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        return ip in _PUBLIC_IPV6 and ip not in _SIX_TO_FOUR and ip.is_global
    return ip.is_global and not ip.is_multicast and not ip.is_reserved
