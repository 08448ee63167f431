"""What a careers site shows: jobs and files that come, change and go."""

import threading
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from penstock.crawl.simhash import MAX_DISTANCE, distance, simhash, visible_text
from tests.simulator.listings import Job
from tests.simulator.posting import Posting, describe_job

_HTML = "text/html; charset=utf-8"
_MOST_WORDS = 100
_FIRST_DAY = datetime(2025, 3, 3, 8, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Page:
    """A job's page, or a file."""

    number: int
    changed: datetime
    media_type: str
    is_listed: bool
    content: bytes = b""
    posting: Posting | None = None

    def bytes_at(self, url: str) -> bytes:
        return self.posting.html(url) if self.posting else self.content


@dataclass
class Pages:
    """The pages of a site, by path. Its clock goes on by a minute with every change."""

    company: str = "Weir & Sons"
    _pages: dict[str, Page] = field(default_factory=dict, init=False)
    _gone: dict[str, int] = field(default_factory=dict, init=False)
    _changes: int = field(default=0, init=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False)

    @property
    def url(self) -> str:
        """Without a slash at the end."""
        raise NotImplementedError

    def page(
        self,
        path: str,
        title: str,
        body: str | None = None,
        *,
        location: str = "Lyon",
        is_listed: bool = True,
    ) -> str:
        """Put up a job; without a body, with a text that no other job has. Returns its URL."""
        with self._lock:
            now = self._next_moment()
            text = body or describe_job(f"{path} {title}")
            posting = Posting(title, text, location, self.company, now, now.isoformat())
            return self._put(path, Page(self._changes, now, _HTML, is_listed, posting=posting))

    def file(
        self, path: str, content: bytes, media_type: str = _HTML, *, is_listed: bool = True
    ) -> str:
        """Put up these very bytes. Returns their URL."""
        with self._lock:
            now = self._next_moment()
            return self._put(path, Page(self._changes, now, media_type, is_listed, content))

    def change(self, path: str, *, title: str | None = None, body: str | None = None) -> None:
        """Write a job anew: its text has nothing in common with what it was, unless it is given."""
        with self._lock:
            old = self._posting(path)
            text = body or describe_job(f"{path} {self._changes}")
            self._repost(path, replace(old, title=title or old.title, body=text))

    def reword(self, path: str) -> None:
        """Change the last word of a job's text: so little that it counts as unchanged."""
        with self._lock:
            old = self._posting(path)
            rest = old.body.rpartition(" ")[0]
            bodies = (f"{rest} in{self._changes}x{number}" for number in range(_MOST_WORDS))
            new = (replace(old, body=body) for body in bodies)
            little = next((one for one in new if _distance(old, one) <= MAX_DISTANCE), None)
            assert little is not None, f"the text of {path} is too short for a little change"
            self._repost(path, little)

    def touch(self, path: str) -> None:
        """Change nothing but the date in the footer."""
        with self._lock:
            self._repost(path, self._posting(path))

    def remove(self, path: str, status: int = 404) -> None:
        """Take a page down, and off all lists."""
        with self._lock:
            del self._pages[path]
            self._gone[path] = status

    def listed_jobs(self) -> list[Job]:
        with self._lock:
            return [
                Job(page.number, self.url + path, page.changed, page.posting)
                for path, page in self._pages.items()
                if page.is_listed
            ]

    def _put(self, path: str, page: Page) -> str:
        self._pages[path] = page
        self._gone.pop(path, None)
        return self.url + path

    def _posting(self, path: str) -> Posting:
        posting = self._pages[path].posting
        assert posting is not None, f"{path} is a file: put up another one"
        return posting

    def _repost(self, path: str, posting: Posting) -> None:
        now = self._next_moment()
        stamped = replace(posting, stamp=now.isoformat())
        self._pages[path] = replace(self._pages[path], changed=now, posting=stamped)

    def _next_moment(self) -> datetime:
        # Last-Modified counts whole seconds: with the real clock, a change could go unnoticed.
        self._changes += 1
        return _FIRST_DAY + timedelta(minutes=self._changes)


def _distance(old: Posting, new: Posting) -> int:
    before, after = (simhash(visible_text(one.html(""))) for one in (old, new))
    return distance(before, after)
