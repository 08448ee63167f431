"""What tasks in flows of your own work with: parts that a process builds once, and their inputs."""

import atexit
import threading
from collections.abc import Sequence
from pathlib import Path

from blocks.configuration import settings_with
from penstock.app import App, open_app
from penstock.crawl.listing import Listed
from penstock.documents import ExtractedText, RawDocument, RawReference
from penstock.embed.embedder import WINDOW_CHARS
from penstock.llm.profiles import load_own_profiles
from penstock.pipeline.profile_choice import choose_by_content
from penstock.settings import Settings
from penstock.store.retry import retry_while_unavailable

Document = RawReference | RawDocument | Path | str | bytes
"""A crawled document, a path, a URL, or bytes."""
Text = str | ExtractedText
Blocks = str | Sequence[str] | None
"""Saved configuration blocks that win over the environment, as `type/name`."""

_ADDRESSES = ("http://", "https://", "s3://")
_opened: list[App] = []
_lock = threading.Lock()


def shared_app(blocks: Blocks) -> App:
    """The parts that the environment and these blocks describe; shared by all tasks, since child
    processes and models take longer to start than most documents take."""
    names = (blocks,) if isinstance(blocks, str) else tuple(blocks or ())
    settings = settings_with(names)
    with _lock:
        for app in _opened:
            if app.settings == settings and app.blocks == names:
                return app
        app = _open(settings, names)
        _opened.append(app)
        return app


@retry_while_unavailable
def _open(settings: Settings, names: Sequence[str]) -> App:
    load_own_profiles(settings.extraction.profiles)
    return open_app(settings, blocks=names)


@atexit.register
def close_shared_apps() -> None:
    """Stop their threads, child processes and connections; the next task builds them again."""
    with _lock:
        while _opened:
            _opened.pop().close()


def is_address(document: Document) -> bool:
    """Whether it has to be fetched before it can be read."""
    return isinstance(document, str) and document.lower().startswith(_ADDRESSES)


def fetch_address(app: App, address: str) -> RawDocument:
    got = app.collector.fetch(Listed(address, address))
    return RawDocument(address, got.content, got.media_type)


def as_raw(document: Document) -> RawReference | RawDocument:
    """A document that needs no fetching."""
    if isinstance(document, bytes):
        return RawDocument("document", document)
    if isinstance(document, str | Path):
        path = Path(document).expanduser()
        return RawReference(None, path.name, 0, None, path=path)
    return document


def as_text(text: Text) -> ExtractedText:
    return ExtractedText(text) if isinstance(text, str) else text


def choose_profile(app: App, text: ExtractedText, profile: str | None) -> str:
    """The one that is asked for, else that of the content."""
    if profile is not None:
        return profile
    stated = text.metadata.get("schema_type")
    return choose_by_content(
        [str(stated)] if stated else [],
        app.settings.extraction.profile,
        text.text,
        text.title,
    ).profile


def embedded_texts(app: App, texts: Text | Sequence[Text]) -> list[str]:
    """What the embedder reads of each."""
    several = [texts] if isinstance(texts, str | ExtractedText) else texts
    window = getattr(app.embedder, "window_chars", WINDOW_CHARS)
    return [_whole(as_text(text))[:window] for text in several]


def _whole(text: ExtractedText) -> str:
    return f"{text.title}\n{text.text}" if text.title else text.text
