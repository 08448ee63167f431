"""An empty database for every measurement: a SQLite file, or one database of a Postgres."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from penstock.local.postgres import PostgresServer

SQLITE, POSTGRES = "sqlite", "postgres"
DATABASES = (SQLITE, POSTGRES)
SHOWN = {SQLITE: "SQLite", POSTGRES: "Postgres"}


class Databases:
    """Makes homes with an empty database each; the server waits for the disk, as users run it."""

    def __init__(self, folder: Path, postgres: PostgresServer | None) -> None:
        self._folder = folder
        self._postgres = postgres
        self._numbers = count()

    def new_home(self, database: str = SQLITE) -> dict[str, str]:
        """The settings of an installation that holds nothing."""
        home = tempfile.mkdtemp(prefix="home-", dir=self._folder)
        if database == SQLITE:
            return {"PENSTOCK_HOME": home}
        assert self._postgres is not None
        dsn = self._postgres.create_database(f"bench_{next(self._numbers)}")
        return {"PENSTOCK_HOME": home, "PENSTOCK_DSN": dsn}


@contextmanager
def open_databases(folder: Path, *, with_postgres: bool) -> Iterator[Databases]:
    """With a Postgres on a free port, if it is needed; stopped at the end."""
    if not with_postgres:
        yield Databases(folder, None)
        return
    # Postgres as root runs as another account, which must be able to enter its folder.
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-pg-") as data,
        PostgresServer(Path(data)) as postgres,
    ):
        yield Databases(folder, postgres)
