"""The ports of an installation, which stay the same from start to start."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.local.processes import free_port, is_taken, write_secret


@dataclass(frozen=True, slots=True)
class Ports:
    """Kept in a file of the home; `say` is called when a part has to move to another port."""

    path: Path
    say: Callable[[str], None]

    def last(self, part: str) -> int | None:
        """The port of its last start."""
        return self._read().get(part)

    def choose(self, part: str, preferred: int | None = None) -> int:
        """The port of its last start, else the preferred one, else any free one."""
        wanted = self.last(part) or preferred
        port = wanted if wanted and not is_taken(wanted) else free_port()
        if wanted not in (None, port):
            self.say(f"port {wanted} is taken by another program: {part} is at port {port} now")
        self.keep(part, port)
        return port

    def keep(self, part: str, port: int) -> None:
        """For the next start."""
        write_secret(self.path, json.dumps(self._read() | {part: port}))

    def _read(self) -> dict[str, int]:
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            return {str(part): int(port) for part, port in found.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}
