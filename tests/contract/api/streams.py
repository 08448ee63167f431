"""Server-sent events of a service, read by clients that may leave at any moment."""

import asyncio
import json
from collections.abc import MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import ClientDisconnect

from tests.contract.api.service import Service


@dataclass(frozen=True)
class Sent:
    """One event as it came."""

    event: str
    data: dict[str, Any]
    id: int | None


@dataclass
class Reader:
    """Reads a run's events, and goes on from the last one that came."""

    service: Service
    path: str
    query: str = ""
    events: list[Sent] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    answer: dict[str, Any] = field(default_factory=dict)

    @property
    def numbers(self) -> list[int]:
        return [one.id for one in self.events if one.id is not None]

    @property
    def has_ended(self) -> bool:
        return bool(self.events) and self.events[-1].event == "end"

    def read(self, most: int | None = None) -> "Reader":
        """Read to the end, or until so many more have come and the connection breaks."""
        asyncio.run(self._read(most))
        return self

    async def _read(self, most: int | None) -> None:
        left = most

        async def receive() -> dict[str, Any]:
            # Whoever asks whether the client has gone gives up at once when there is no answer.
            await asyncio.sleep(3600)
            raise AssertionError

        async def send(message: MutableMapping[str, Any]) -> None:
            nonlocal left
            if message["type"] == "http.response.start":
                self.answer.update(message)
                return
            for event in _parse(message["body"].decode()):
                if left == 0:
                    raise OSError("the connection is broken")
                self.events.append(event)
                left = None if left is None else left - 1

        with suppress(ClientDisconnect, OSError):
            await self.service.web(self._scope(), receive, send)

    def _scope(self) -> dict[str, Any]:
        headers = {"host": "localhost", **self.headers}
        if self.numbers:
            headers["last-event-id"] = str(self.numbers[-1])
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": self.query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }


def _parse(text: str) -> list[Sent]:
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line[:1] != ":")
        if fields:
            number = fields.get("id")
            data = json.loads(fields["data"])
            found.append(Sent(fields["event"], data, None if number is None else int(number)))
    return found
