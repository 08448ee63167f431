"""What the server was asked and how busy it was, for tests to look at from their own thread."""

import threading

from penstock.testing.chat import ChatRequest


class Records:
    """Requests in the order they came, and how many were being answered at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: list[ChatRequest] = []
        self._under_way = 0
        self._peak = 0

    def add(self, request: ChatRequest) -> None:
        with self._lock:
            self._requests.append(request)

    def begin(self) -> None:
        with self._lock:
            self._under_way += 1
            self._peak = max(self._peak, self._under_way)

    def end(self) -> None:
        with self._lock:
            self._under_way -= 1

    def clear(self) -> None:
        with self._lock:
            self._requests = []
            self._peak = self._under_way

    @property
    def requests(self) -> list[ChatRequest]:
        with self._lock:
            return list(self._requests)

    @property
    def peak(self) -> int:
        with self._lock:
            return self._peak

    def count(self, model: str | None, status: int | None) -> int:
        return sum(
            model in (None, request.model) and status in (None, request.status)
            for request in self.requests
        )
