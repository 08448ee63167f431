"""Environments of the peers, made once and kept: theirs must not meddle with our own packages."""

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PEERS = Path(__file__).parent / "peers"


def default_cache() -> Path:
    return Path(tempfile.gettempdir()) / f"penstock-bench-peers-{os.getuid()}"


def ensure_python(cache: Path, requirements: str) -> Path:
    """The Python of an environment with these requirements."""
    listed = (PEERS / requirements).read_bytes()
    key = hashlib.sha256(sys.version.encode() + listed).hexdigest()[:12]
    folder = cache / f"{Path(requirements).stem}-{key}"
    python, ready = folder / "bin" / "python", folder / ".ready"
    _make_private(cache)
    if not ready.exists():
        _run(sys.executable, "-m", "venv", "--clear", str(folder))
        _run(str(python), "-m", "pip", "install", "--quiet", "-r", str(PEERS / requirements))
        ready.touch()
    return python


def _make_private(cache: Path) -> None:
    """Programs are run from this folder, so other accounts must not be able to write to it."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    if cache.stat().st_uid != os.getuid():
        raise SystemExit(f"{cache} belongs to another account: name another folder with --cache")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
