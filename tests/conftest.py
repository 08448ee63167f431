"""What every test may use: databases, servers, and a clean environment.

Servers are started by the first test that needs them. Each worker of a parallel run has its own
Postgres, Valkey and S3 server; the Prefect server, which takes 20 s to start, is shared by all.
"""

import gc
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from redis import Redis
from xdist.scheduler import LoadFileScheduling

from penstock.crawl.s3 import S3Access, build_s3_client
from penstock.local.postgres import PostgresServer
from penstock.local.prefect_server import PrefectServer, ServerAddress
from penstock.local.valkey import ValkeyServer
from penstock.redis.client import build_redis_client
from penstock.store.database import Database
from penstock.store.migration import migrate
from tests import leftovers
from tests.postgres import EmptiedDatabase, new_database
from tests.preloaded import PRELOADED
from tests.s3 import running_s3, unscript
from tests.simulator import Site, running_site

_TEMPLATE = "penstock_template"
_FOREIGN_PREFIXES = ("PENSTOCK_", "EXTRACTION_", "EMBEDDING_", "PREFECT_", "AWS_")
_FOREIGN_NAMES = {"REDIS_URL", "GROQ_API_KEY", "NODE_BATCH_MAX", "ACTIVEKG_DSN"}

# Deadlines measure the machine, and remembered examples would lie in whatever folder we are in.
settings.register_profile("penstock", database=None, deadline=None)
settings.load_profile("penstock")

_WATCHER = pytest.StashKey[subprocess.Popen[bytes]]()

_BROWSER = "tests/dashboard/browser"
_TOGETHER = (_BROWSER, "tests/integration/deployments")
# In this order, before all others: a long file that is begun last keeps one worker busy while the
# others have nothing left to do.
_SLOW = (
    "tests/e2e/test_prefect_for_real.py",
    "tests/e2e/test_up.py",
    _BROWSER,
    "tests/integration/deployments",
    "tests/faults",
    "tests/e2e",
    "tests/integration",
    "bench",
)
_SERVERS = {"postgres", "valkey", "s3_access", "prefect_server", "site", "server"}


def pytest_configure(config: pytest.Config) -> None:
    if not _is_parallel_worker(config):
        # Short: the paths of documents are part of names that Prefect cuts.
        config.option.basetemp = str(leftovers.begin() / "t")
    # Threads of Prefect that outlive a test know no server, and would start one of their own.
    os.environ["PREFECT_SERVER_EPHEMERAL_ENABLED"] = "false"


def pytest_sessionstart(session: pytest.Session) -> None:
    if not _is_parallel_worker(session.config):
        session.stash[_WATCHER] = leftovers.watch(_run_folder())


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Also after Ctrl-C. A process that a test has left running fails the run."""
    yield
    PRELOADED.stop()
    if _is_parallel_worker(session.config):
        return
    PrefectServer(_run_folder() / "prefect-home").stop()
    leftovers.end_helpers()
    went_well = session.exitstatus == pytest.ExitCode.OK
    left = leftovers.end(_run_folder(), *[leftovers.PATIENCE_SECONDS] * went_well)
    with session.stash[_WATCHER] as watcher:
        watcher.communicate()
    if left and went_well:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print("\nprocesses left by the tests:", *left, sep="\n  ")  # noqa: T201


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Workers send reports as UTF-8, and some tests write what UTF-8 cannot express."""
    report = yield
    report.sections = [
        (title, text.encode("utf-8", "backslashreplace").decode())
        for title, text in report.sections
    ]
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help="only tests that start no server and no process"
    )


class _ByFile(LoadFileScheduling):  # type: ignore[misc] # xdist has no types
    """Each file is run by one worker; so are folders whose tests share what takes long to make, or
    what there is once on a Prefect server (the work pool and its deployments)."""

    def _split_scope(self, nodeid: str) -> str:
        together = (folder for folder in _TOGETHER if nodeid.startswith(folder))
        return next(together, None) or super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    return _ByFile(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Importing what is not run takes most of the time that collecting takes."""
    return True if config.getoption("quick") and _is_slow(collection_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if _needs_servers(item):
            item.add_marker("full_suite")
    if config.getoption("quick"):
        slow = [item for item in items if item.get_closest_marker("full_suite")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("full_suite")]
        sys.addaudithook(_refuse_servers)
    items.sort(key=lambda item: _place(item.path))


def pytest_collection_finish() -> None:
    """Looking through everything that was imported for garbage, again and again, took a fifth of
    the time of the tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@cache
def _place(path: Path) -> int:
    root = Path(__file__).parent.parent
    found = (n for n, slow in enumerate(_SLOW) if path.is_relative_to(root / slow))
    return next(found, len(_SLOW))


def _is_slow(path: Path) -> bool:
    return _place(path) < len(_SLOW)


def _needs_servers(item: pytest.Item) -> bool:
    fixtures = set(getattr(item, "fixturenames", ()))
    chosen = item.callspec.params if hasattr(item, "callspec") else {}
    on_postgres = "postgres" in (chosen.get("database"), chosen.get("empty_url"))
    return on_postgres or bool(_SERVERS & fixtures) or _is_slow(item.path)


def _refuse_servers(event: str, _arguments: tuple[object, ...]) -> None:
    """The promise of the quick tests. A test that breaks it is marked with `full_suite`."""
    if event in ("socket.bind", "subprocess.Popen", "os.fork", "os.posix_spawn"):
        raise RuntimeError(f"a quick test may not start anything ({event}): mark it `full_suite`")


def _is_parallel_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _run_folder() -> Path:
    return Path(os.environ[leftovers.VARIABLE])


@pytest.fixture(autouse=True)
def clean_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No setting of the caller, from the environment or a `.env`, reaches a test."""
    for name in list(os.environ):
        if name.startswith(_FOREIGN_PREFIXES) or name in _FOREIGN_NAMES:
            monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.chdir(tmp_path_factory.mktemp("cwd"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests. Pytest's own folders are closed to the account it runs as."""
    with (
        tempfile.TemporaryDirectory(prefix="penstock-tests-") as folder,
        PostgresServer(Path(folder), durable=False) as server,
    ):
        yield server


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated, empty SQLite file to copy."""
    path = tmp_path_factory.mktemp("template") / "penstock.db"
    _migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def emptied_database(postgres: PostgresServer) -> EmptiedDatabase:
    """Migrated, and emptied after each test."""
    _migrate(postgres.create_database(_TEMPLATE))
    return EmptiedDatabase(postgres, _TEMPLATE)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """SQLite, and Postgres too where a test says that the two may differ."""
    both = metafunc.definition.get_closest_marker("both_databases")
    chosen = {m.args[0] for m in metafunc.definition.iter_markers("parametrize")}
    for name in ("database", "empty_url"):
        if name in metafunc.fixturenames and name not in chosen:
            kinds = ["sqlite", "postgres"] if both else ["sqlite"]
            metafunc.parametrize(name, kinds, indirect=True)


@pytest.fixture
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a database without any schema."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'penstock.db'}"
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        with new_database(server, "template1", "penstock_empty") as url:
            yield url


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A migrated, empty database of this test alone."""
    if request.param == "sqlite":
        path = tmp_path / "penstock.db"
        shutil.copy(request.getfixturevalue("sqlite_template"), path)
        yield from _opened(f"sqlite:///{path}")
    else:
        lent: EmptiedDatabase = request.getfixturevalue("emptied_database")
        with lent.lend() as url:
            yield from _opened(url)


def _migrate(url: str) -> None:
    for database in _opened(url):
        migrate(database)


def _opened(url: str) -> Iterator[Database]:
    database = Database(url)
    try:
        yield database
    finally:
        database.close()


@pytest.fixture(scope="session")
def s3_access() -> Iterator[S3Access]:
    """An S3 server for all tests; stopped at the end, also when tests fail."""
    with running_s3() as access:
        yield access


@pytest.fixture(scope="session")
def s3_client(s3_access: S3Access) -> Iterator[Any]:
    """A client of that server; one for all tests, since making it takes 0.2 s."""
    with closing(build_s3_client(s3_access)) as client:
        yield client


@pytest.fixture
def s3(s3_client: Any) -> Iterator[Any]:
    """The same client, without the answers that other tests have scripted."""
    yield s3_client
    unscript(s3_client)


@pytest.fixture
def bucket(s3: Any) -> str:
    """An empty bucket of this test alone."""
    name = f"penstock-{uuid.uuid4().hex}"
    s3.create_bucket(Bucket=name)
    return name


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    with ValkeyServer(tmp_path_factory.mktemp("valkey")) as server:
        yield server.start()


@pytest.fixture
def redis_client(valkey: str) -> Iterator[Redis]:
    """Emptied before each test."""
    with build_redis_client(valkey) as client:
        client.flushall()
        yield client


@pytest.fixture(scope="session")
def prefect_home() -> Path:
    return _run_folder() / "prefect-home"


@pytest.fixture(scope="session")
def prefect_server(prefect_home: Path) -> ServerAddress:
    """Its address; shared by all workers of a parallel run, and stopped when that ends."""
    prefect_home.mkdir(exist_ok=True)
    return PrefectServer(prefect_home, idle_seconds=None).ensure()


@pytest.fixture
def site() -> Iterator[Site]:
    """A careers site on loopback, without any jobs yet."""
    with running_site() as site:
        yield site
