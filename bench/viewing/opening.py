"""How long a run's page takes: to its first byte, to its first picture, until it can be used."""

from dataclasses import dataclass
from statistics import median

from playwright.sync_api import Browser

from bench.viewing.scene import Scene

_TIMES = """() => {
  const [page] = performance.getEntriesByType("navigation");
  return { byte: page.responseStart, shown: page.domContentLoadedEventEnd, now: performance.now(),
           drawn: document.querySelectorAll(".line").length };
}"""


@dataclass(frozen=True, slots=True)
class Opened:
    """Median seconds since the link was followed."""

    first_byte: float
    shown: float
    interactive: float
    """The newest lines of the log are there, and all of the page's scripts have run."""
    drawn: int
    """Elements for lines, of all the lines there are."""


def open_page(scene: Scene, browser: Browser, rounds: int) -> Opened:
    found = [_open_once(scene, browser) for _ in range(rounds)]
    return Opened(
        median(one.first_byte for one in found),
        median(one.shown for one in found),
        median(one.interactive for one in found),
        max(one.drawn for one in found),
    )


def _open_once(scene: Scene, browser: Browser) -> Opened:
    page = browser.new_page()
    try:
        page.goto(f"{scene.address}/ui/runs/{scene.run_id}", wait_until="commit")
        page.locator(".line[data-seq]").first.wait_for()
        times = page.evaluate(_TIMES)
        seconds = {name: times[name] / 1000 for name in ("byte", "shown", "now")}
        return Opened(seconds["byte"], seconds["shown"], seconds["now"], times["drawn"])
    finally:
        page.close()
