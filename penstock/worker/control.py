"""What the threads of one worker share: whether to go on, to wait, or to end."""

import threading


class Control:
    """Stop, pause and wake-up signals."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._changed = threading.Condition()
        self._paused = False
        self._calls = 0

    @property
    def paused(self) -> bool:
        return self._paused

    def pause(self, wanted: bool) -> None:
        with self._changed:
            self._paused = wanted
            self._changed.notify_all()

    def stop(self) -> None:
        self.stopping.set()
        self.wake()

    def wake(self) -> None:
        """There may be work: look now rather than at the next poll."""
        with self._changed:
            self._calls += 1
            self._changed.notify_all()

    @property
    def calls(self) -> int:
        """How often somebody woke us; taken before a look, it tells a wait what it has missed."""
        return self._calls

    def wait(self, seconds: float, calls: int) -> None:
        """Until somebody wakes us, at most so long."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.stopping.is_set() or self._calls != calls, timeout=seconds
            )

    def wait_while_paused(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.stopping.is_set() or not self._paused)
