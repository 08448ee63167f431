"""Static files over HTTP with validators: ETag, Last-Modified, and 304 when nothing changed."""

from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message
from email.utils import format_datetime, parsedate_to_datetime
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

BASE_URL_MARK = b"{{base_url}}"

_CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".xml": "application/xml",
}
# Sitemaps must name absolute URLs (sitemaps.org; RFC 9309 says the same of robots.txt's pointer).
_WITH_ABSOLUTE_URLS = frozenset({"sitemap.xml", "robots.txt"})


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file as it is sent."""

    content: bytes
    content_type: str
    etag: str
    modified_at: datetime

    def is_known_to(self, headers: Message) -> bool:
        """Whether the client already holds this version; an ETag outranks a date (RFC 9110)."""
        if (tags := headers.get("If-None-Match")) is not None:
            known = {tag.strip().removeprefix("W/") for tag in tags.split(",")}
            return self.etag in known or "*" in known
        since = _parse_date(headers.get("If-Modified-Since"))
        return since is not None and self.modified_at <= since


def find_file(folder: Path, target: str) -> Path | None:
    """The file inside the (resolved) folder that a request's target names, if there is one."""
    relative = unquote(urlsplit(target).path).lstrip("/")
    try:
        path = (folder / relative).resolve()
        if path.is_dir():
            path = (path / "index.html").resolve()
        inside = path.is_relative_to(folder) and path.is_file()
    except (OSError, ValueError):
        return None
    return path if inside else None


def load_file(path: Path, base_url: str) -> StaticFile:
    content = path.read_bytes()
    if path.name in _WITH_ABSOLUTE_URLS:
        content = content.replace(BASE_URL_MARK, base_url.encode("ascii"))
    return StaticFile(
        content=content,
        content_type=_CONTENT_TYPES.get(path.suffix, "application/octet-stream"),
        etag=f'"{sha256(content).hexdigest()[:32]}"',
        modified_at=datetime.fromtimestamp(int(path.stat().st_mtime), UTC),
    )


class StaticFileHandler(BaseHTTPRequestHandler):
    """Answers GET and HEAD from one folder, and says nothing on the screen."""

    server_version = "PenstockDemo"
    sys_version = ""
    timeout = 10

    def __init__(self, *args: Any, folder: Path, base_url: str) -> None:
        self._folder = folder
        self._base_url = base_url
        super().__init__(*args)

    def do_GET(self) -> None:
        file = self._send_head()
        if file is not None:
            self.wfile.write(file.content)

    def do_HEAD(self) -> None:
        self._send_head()

    def log_message(self, format: str, *args: Any) -> None:
        """A demo's screen belongs to the demo."""

    def _send_head(self) -> StaticFile | None:
        path = find_file(self._folder, self.path)
        if path is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        file = load_file(path, self._base_url)
        known = file.is_known_to(self.headers)
        self.send_response(HTTPStatus.NOT_MODIFIED if known else HTTPStatus.OK)
        self.send_header("ETag", file.etag)
        self.send_header("Last-Modified", format_datetime(file.modified_at, usegmt=True))
        if not known:
            self.send_header("Content-Type", file.content_type)
            self.send_header("Content-Length", str(len(file.content)))
        self.end_headers()
        return None if known else file


def _parse_date(value: str | None) -> datetime | None:
    try:
        parsed = parsedate_to_datetime(value or "")
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
