"""What the browser is shown: tenants with documents, a long log, and a server of each kind."""

from dataclasses import dataclass
from pathlib import Path

from penstock.store.database import Database
from penstock.store.migration import migrate
from tests.dashboard.browser.served import Served
from tests.dashboard.furnishing import Furnished, Workshop

LINES = 100_000


@dataclass
class House:
    """Both servers, and this process, have the same home."""

    home: Path
    database: Database
    free: Served
    """Without tokens."""
    guarded: Served
    acme: Furnished
    globex: Furnished
    long_run: int

    def open_shop(self, source: str, tenant: str = "default") -> Workshop:
        """A workplace with a source of its own."""
        return Workshop(self.database, self.home, tenant, source)


def open_database(home: Path) -> Database:
    database = Database(f"sqlite:///{home / 'penstock.db'}")
    migrate(database)
    return database


def write_long_log(database: Database, home: Path) -> int:
    """A finished run with very many lines; its number."""
    shop = Workshop(database, home, "default", "long story")
    run_id = shop.ingest().run.id
    shop.say_much(run_id, LINES)
    shop.close()
    return run_id
