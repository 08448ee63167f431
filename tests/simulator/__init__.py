"""A careers site to test against: `site.page(…)`, `site.change(…)`, `site.trouble(path, …)`."""

from tests.simulator.site import ANYWHERE, Site, running_site
from tests.simulator.trouble import (
    PRIVATE_ADDRESSES,
    Drip,
    Empty,
    Endless,
    EndlessHeaders,
    GzipBomb,
    Redirect,
    RedirectLoop,
    Reset,
    Slow,
    Stall,
    Status,
    Trouble,
    WrongLength,
)
from tests.simulator.visit import Request

__all__ = [
    "ANYWHERE",
    "PRIVATE_ADDRESSES",
    "Drip",
    "Empty",
    "Endless",
    "EndlessHeaders",
    "GzipBomb",
    "Redirect",
    "RedirectLoop",
    "Request",
    "Reset",
    "Site",
    "Slow",
    "Stall",
    "Status",
    "Trouble",
    "WrongLength",
    "running_site",
]
