"""A worker's own recovery: takes back what dead workers held, now and then."""

import threading
from collections.abc import Callable

from penstock.bootstrap import App
from penstock.recovery import Recovered
from penstock.work.items import WorkItem
from penstock.worker.callbacks import Callbacks
from penstock.worker.control import Control
from penstock.worker.jobs import job_failure


class Sweeper(threading.Thread):
    """Recovers once at the start and then at every sweep."""

    def __init__(
        self,
        app: App,
        control: Control,
        callbacks: Callbacks,
        is_ours: Callable[[WorkItem], bool],
    ) -> None:
        """`is_ours`: whether the program may hear of an item's end."""
        super().__init__(name="penstock-sweeper", daemon=True)
        self._app = app
        self._control = control
        self._callbacks = callbacks
        self._is_ours = is_ours

    def run(self) -> None:
        while not self._control.stopping.is_set():
            found = self._app.try_recover()
            if found is not None:
                self._tell(found)
            self._control.stopping.wait(self._app.settle(found))

    def _tell(self, found: Recovered) -> None:
        for verdict in found.items.dead:
            if self._is_ours(verdict.item):
                self._callbacks.emit("job_failed", *job_failure(verdict, spent=0))
        if found.items:
            self._control.wake()
