"""Opening the application on a database of this version's schema."""

from penstock import faults
from penstock.bootstrap.app import App
from penstock.settings import Settings, load_settings
from penstock.store.database import Database
from penstock.store.migration import check, current_revision, migrate


def open_app(settings: Settings | None = None, *, timeout_seconds: float = 30.0) -> App:
    """Parts on a database of this version's schema.

    An empty database, or the embedded one, is brought there without asking. A Postgres that others
    work on is migrated only when somebody says so: `penstock doctor --fix`. `timeout_seconds` is
    how long a writer waits for another writer of a SQLite file.
    """
    settings = settings or load_settings()
    faults.arm(settings.faults)
    database = Database(
        settings.database_url,
        timeout_seconds=timeout_seconds,
        # Whatever such a process held is taken back by then.
        idle_seconds=settings.lease_seconds,
    )
    if database.is_sqlite or current_revision(database) is None:
        migrate(database)
    else:
        check(database)
    return App(settings, database)
