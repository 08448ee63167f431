"""A run's page in a browser, and what its log shows."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Page

PATIENCE_SECONDS = 120


def wait_for(page: Page, happened: Callable[[], bool], what: str = "it") -> None:
    """Look again and again, and let the browser work meanwhile."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < deadline, f"{what} did not happen"
        page.wait_for_timeout(20)


@dataclass
class LogPage:
    page: Page
    run_id: int

    def open(self) -> "LogPage":
        self.page.goto(f"/ui/runs/{self.run_id}")
        self.wait(lambda: self.line_count != "", "the log is read")
        return self

    @property
    def line_count(self) -> str:
        """How many lines there are, in words."""
        return self.page.inner_text("#line-count")

    @property
    def total(self) -> int:
        digits = "".join(one for one in self.line_count if one.isdigit())
        return int(digits or 0)

    @property
    def messages(self) -> list[str]:
        """Those that are elements now, from top to bottom, seen or nearly seen."""
        found = self.page.evaluate(
            """() => [...document.querySelectorAll('.line[data-seq]')]
                .map((row) => [new DOMMatrix(getComputedStyle(row).transform).m42,
                               row.querySelector('.message').textContent])
                .sort((a, b) => a[0] - b[0]).map((pair) => pair[1])"""
        )
        return [str(one) for one in found]

    @property
    def on_screen(self) -> list[tuple[int, str]]:
        """Lines that can be read now: their numbers and messages."""
        found = self.page.evaluate(
            """() => {
                const box = document.querySelector('.lines').getBoundingClientRect();
                return [...document.querySelectorAll('.line')]
                    .map((row) => ({ row, at: row.getBoundingClientRect() }))
                    .filter((one) => one.at.bottom > box.top + 1 && one.at.top < box.bottom - 1)
                    .sort((a, b) => a.at.top - b.at.top)
                    .map(({ row }) => [Number(row.dataset.seq ?? -1),
                                       row.querySelector('.message')?.textContent ?? '…']);
            }"""
        )
        return [(int(number), str(message)) for number, message in found]

    @property
    def elements(self) -> int:
        return self.page.locator(".line").count()

    @property
    def top(self) -> float:
        return float(self._measure("box.scrollTop"))

    @property
    def below(self) -> float:
        """How far it is from the end."""
        return float(self._measure("box.scrollHeight - box.clientHeight - box.scrollTop"))

    def scroll_to(self, top: float) -> None:
        """As a person does: it stays there, and the page has noticed."""
        self.page.evaluate(
            """(top) => new Promise((done) => {
                const box = document.querySelector('.lines');
                const before = box.scrollTop;
                box.scrollTop = top;
                if (box.scrollTop === before) { done(); return; }
                box.addEventListener('scroll', () => requestAnimationFrame(done), { once: true });
            })""",
            top,
        )

    def scroll_from_end(self, distance: float) -> None:
        self.scroll_to(self.top + self.below - distance)

    def read_all(self) -> list[tuple[int, str]]:
        """Every line from the first to the last, by scrolling through them."""
        seen: dict[int, str] = {}
        top = 0.0
        while True:
            self.scroll_to(top)
            self.wait(lambda: all(number > 0 for number, _ in self.on_screen), "lines are fetched")
            seen |= dict(self.on_screen)
            if self.below <= 1:
                return list(seen.items())
            top += 300

    def choose(self, tab: str) -> None:
        """Go to another tab, and wait until it is shown: its lines take the place of those before,
        a moment after the server has answered."""
        before = self.line_count
        marked = self.page.evaluate(
            """() => {
                const rows = document.querySelectorAll('.line');
                rows.forEach((row) => { row.dataset.before = ''; });
                return rows.length;
            }"""
        )
        with self.page.expect_response(lambda answer: "/lines" in answer.url):
            self.page.click(f"#tab-{tab}")
        if marked:
            rows = self.page.locator(".line[data-before]")
            self.wait(lambda: rows.count() == 0, f"the tab {tab}")
        else:
            self.wait(lambda: self.line_count != before, f"the tab {tab}")
        self.settle()

    def settle(self) -> None:
        """Until what was asked for is drawn."""
        self.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def wait(self, happened: Callable[[], bool], what: str) -> None:
        wait_for(self.page, happened, what)

    def wait_for_line(self, message: str) -> None:
        self.wait(lambda: message in self.messages, f"the line {message!r}")

    def _measure(self, expression: str) -> Any:
        return self.page.evaluate(
            f"() => {{ const box = document.querySelector('.lines'); return {expression}; }}"
        )
