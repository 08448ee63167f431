"""The home folder, closed to other accounts of the machine."""

import errno
import logging
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

log = logging.getLogger(__name__)

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OWNER_ALONE = 0o700
# Root runs Postgres as `nobody`, who has to enter the folder above its data, but may not list it.
_OTHERS_ENTER = 0o711
_OURS = (
    "penstock.db*",  # with SQLite's own files beside it, and the lock of migrations
    "penstock.log",
    "raw",
    "logs",
    "demo",
    "prefect",
    "prefect.auth*",
    "postgres",
    "postgres.new.*",
    "postgres.password*",
    "valkey",
    "valkey.password*",
    "up.json",
    "up.lock",
    "up.*.tmp",
)
"""All that we make in a home, with the files that replace others in one step."""
_FROM_THE_FILE_SYSTEM = "lost+found"
# With less free space, the next documents would fill the disk.
LEAST_FREE_BYTES = 16 * 1024 * 1024
# An empty file fits on a full disk.
_PROBE_BYTES = 4096
_WARNED_OF: set[Path] = set()


def make_home(folder: Path) -> None:
    """Make the folder, and close it, also one that an older version left open."""
    folder.mkdir(mode=_OWNER_ALONE, parents=True, exist_ok=True)
    close_home(folder)


def make_private_folder(folder: Path) -> None:
    """Make a folder in the home, for its owner alone."""
    make_home(folder.parent)
    folder.mkdir(mode=_OWNER_ALONE, exist_ok=True)


def close_home(folder: Path) -> None:
    """Close the home, if there is one, and what of ours in it could be reached all the same.

    A folder that others use too, such as /tmp or /srv, stays as it is, and so does what is theirs.
    Where modes cannot be changed, a warning says so.
    """
    with _warned(folder):
        status = folder.stat()
        if status.st_uid != os.geteuid():
            return  # its owner decides
        names = [path.name for path in folder.iterdir()]
        if not _is_shared(status, names):
            with _warned(folder):
                _change_mode(folder, _OTHERS_ENTER if _is_root() else _OWNER_ALONE)
        for name in filter(is_ours, names):
            # One that cannot be closed does not keep the others open.
            with _warned(folder):
                _close(folder / name)


def is_ours(name: str) -> bool:
    """Whether an entry of a home has a name that we give."""
    return any(fnmatchcase(name, pattern) for pattern in _OURS)


def open_private(path: str, flags: int) -> int:
    """For `open`: a file that is made by it is for its owner alone."""
    return os.open(path, flags, 0o600)


def _is_root() -> bool:
    return os.geteuid() == 0


@contextmanager
def _warned(folder: Path) -> Iterator[None]:
    """Warn, and go on, on a read-only file system or one that keeps no modes."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        # Once in a process, which closes its home each time it opens it.
        if folder not in _WARNED_OF:
            _WARNED_OF.add(folder)
            log.warning(
                "other accounts of this machine may be able to read %s, which cannot be closed "
                "to them (%s): name a folder on another file system in PENSTOCK_HOME, or mount "
                "this one for its owner alone (umask=077)",
                folder,
                error.strerror or error,
            )


def _is_shared(status: os.stat_result, names: list[str]) -> bool:
    return bool(status.st_mode & stat.S_ISVTX) or not all(
        is_ours(name) or name == _FROM_THE_FILE_SYSTEM for name in names
    )


def _close(path: Path) -> None:
    """Postgres's folder belongs to another account, and is closed already."""
    status = path.lstat()
    if status.st_uid == os.geteuid() and not stat.S_ISLNK(status.st_mode):
        _change_mode(path, stat.S_IMODE(status.st_mode) & ~_OTHERS)


def _change_mode(path: Path, mode: int) -> None:
    if stat.S_IMODE(path.stat().st_mode) != mode:
        path.chmod(mode)


def check_disk(folder: Path) -> None:
    """Raise OSError unless something can be written there, and some room is left."""
    probe = folder / f".{uuid.uuid4().hex}.probe"
    try:
        probe.write_bytes(bytes(_PROBE_BYTES))
    finally:
        probe.unlink(missing_ok=True)
    if shutil.disk_usage(folder).free < LEAST_FREE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
