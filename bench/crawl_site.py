"""A loopback site of many pages, each answered after a fixed latency."""

import argparse
import asyncio
import hashlib
import random

PAGE_CHARACTERS = 5_000
_WORDS = ("turbine", "gate", "sluice", "weir", "reservoir", "inflow", "governor", "spillway")
_MENU = "".join(f'<li class="c{n}"><a href="/{n}">Part {n}</a></li>' for n in range(60))


def make_page(number: int) -> bytes:
    """About 5 kB of visible text in about 20 kB of page, different for every number."""
    chosen = random.Random(number)
    words: list[str] = []
    length = 0
    while length < PAGE_CHARACTERS:
        words.append(f"{chosen.choice(_WORDS)}{chosen.randrange(1000)}")
        length += len(words[-1]) + 1
    paragraphs = (" ".join(words[i : i + 60]) for i in range(0, len(words), 60))
    body = "".join(f'<p class="text">{one}</p>' for one in paragraphs)
    styles = "".join(f".c{n}{{margin:{n}px;padding:{n % 9}px}}" for n in range(350))
    return (
        f"<!doctype html><html><head><title>Page {number}</title><style>{styles}</style></head>"
        f"<body><header><nav><ul>{_MENU}</ul></nav></header><main><h1>Page {number}</h1>{body}"
        "</main><footer>All rights reserved</footer></body></html>"
    ).encode()


class Site:
    """Speaks just enough HTTP/1.1: GET, keep-alive, ETag."""

    def __init__(self, pages: int, latency_seconds: float) -> None:
        self._latency_seconds = latency_seconds
        made = [make_page(number) for number in range(pages)]
        self._pages = {
            f"/page/{number}": (page, f'"{hashlib.md5(page).hexdigest()}"')
            for number, page in enumerate(made)
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                writer.write(await self._answer(head.decode("latin-1")))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, head: str) -> bytes:
        path = head.split(" ", 2)[1]
        if path not in self._pages:
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        await asyncio.sleep(self._latency_seconds)
        page, etag = self._pages[path]
        if etag in head:
            return f"HTTP/1.1 304 Not Modified\r\nETag: {etag}\r\n\r\n".encode()
        said = f"Content-Type: text/html; charset=utf-8\r\nETag: {etag}"
        return f"HTTP/1.1 200 OK\r\n{said}\r\nContent-Length: {len(page)}\r\n\r\n".encode() + page


async def main(pages: int, latency_seconds: float) -> None:
    server = await asyncio.start_server(Site(pages, latency_seconds).serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - read by its caller
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("pages", type=int)
    parser.add_argument("latency_seconds", type=float)
    chosen = parser.parse_args()
    asyncio.run(main(chosen.pages, chosen.latency_seconds))
