"""What `penstock up` starts, in which order, and with which settings."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from pydantic import SecretStr

from penstock.app import open_app
from penstock.doctor import check_readiness
from penstock.errors import ServiceError
from penstock.local.installation import InstallationHome, PostgresPart, PrefectPart
from penstock.local.ports import Ports
from penstock.local.postgres import find_programs
from penstock.local.prefect_server import PrefectServer, api_url, is_same_api
from penstock.local.processes import (
    LOOPBACK,
    answers_ok,
    end_marked,
    free_port,
    is_taken,
    last_lines,
    mark_of,
    marked_environment,
)
from penstock.local.supervisor import ProcessPart, Supervisor
from penstock.local.valkey import ValkeyPart, valkey_command
from penstock.settings import Settings, load_settings, mask_url

POOL = "penstock"
PREFECT_PORT = 4200
API_PORT = 8000
# Flow runs have this long to give back what they do.
WORKER_GRACE_SECONDS = 30.0
_HEALTH_SECONDS = 2.0
# Credentials for a Prefect server that is not ours.
_CREDENTIALS = ("PREFECT_API_AUTH_STRING", "PREFECT_API_KEY")

Step = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True)
class Startup:
    """Starts the parts in order. Their addresses are put into this process's environment, which
    later parts and restarted ones inherit."""

    installation: Supervisor
    home: InstallationHome
    settings: Settings
    step: Step

    @property
    def ports(self) -> Ports:
        return Ports(self.home.ports, self.installation.add_note)

    def run(self, workers: int, port: int | None) -> None:
        self._refuse_missing_packages()
        self._refuse_missing_prefect()
        postgres = self._start_database()
        self._start_redis()
        with self.step("migrations"):
            self._migrate()
        self._start_prefect(postgres)
        with self.step("deployments"):
            self._install()
        with self.step("workers"):
            self._start_standby()
            for number in range(1, workers + 1):
                self._start_worker(number)
        with self.step("api"):
            self._start_api(port)

    def _refuse_missing_packages(self) -> None:
        """Checked first, before any folder is made."""
        if self.settings.dsn is None:
            find_programs()
        if self.settings.redis_url is None:
            valkey_command(self.home.valkey, free_port())

    def _refuse_missing_prefect(self) -> None:
        named = self._named_prefect()
        if named is None:
            return
        import httpx

        try:
            httpx.get(f"{named.rstrip('/')}/health", timeout=_HEALTH_SECONDS)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ServiceError(
                f"PREFECT_API_URL names {mask_url(named)}, where no Prefect server answers "
                f"({type(error).__name__}): start that one, or `unset PREFECT_API_URL "
                "PREFECT_API_AUTH_STRING` (and remove them from .env) to have one started here"
            ) from error

    def _named_prefect(self) -> str | None:
        """The address of a server that is not ours. What we print to be exported names ours, which
        is not up yet."""
        named = os.environ.get("PREFECT_API_URL")
        port = self.ports.last("prefect")
        is_ours = named and port and is_same_api(named, api_url(port)) and not is_taken(port)
        return None if is_ours else named

    def _start_database(self) -> PostgresPart | None:
        if self.settings.dsn is not None:
            self._use_given("postgres", "PENSTOCK_DSN", self.settings.dsn)
            return None
        with self.step("postgres"):
            part = PostgresPart(
                self.home.postgres, self.home.postgres_password, self.ports.choose("postgres")
            )
            self.installation.start(part)
            self._use({"PENSTOCK_DSN": part.server.ensure_database("penstock")})
        if self.settings.sqlite_file.exists():
            self.installation.add_note(
                f"documents ingested earlier are in {self.settings.sqlite_file}, which is not used "
                f"now; set PENSTOCK_DSN=sqlite:///{self.settings.sqlite_file} to use it"
            )
        return part

    def _start_redis(self) -> None:
        if self.settings.redis_url is not None:
            self._use_given("valkey", "REDIS_URL", self.settings.redis_url)
            return
        with self.step("valkey"):
            part = ValkeyPart(
                self.home.valkey,
                self.home.logs,
                self.installation.id,
                self.home.valkey_password,
                self.ports.choose("valkey"),
            )
            self.installation.start(part)
            self._use({"REDIS_URL": str(part.address)})

    def _migrate(self) -> None:
        """Our own database without asking; another one only if it is empty."""
        settings = load_settings()
        if self.settings.dsn is None:
            from entrypoints.cli.migrate import opened_database
            from penstock.store.migration import migrate

            # No worker uses it: all of this home's were ended before its Postgres was started.
            with opened_database(settings) as database:
                migrate(database)
        with open_app(settings) as app:
            for name, found in check_readiness(app).items():
                if not found["ok"]:
                    raise ServiceError(f"{name} cannot be used: {found['detail']}")

    def _start_prefect(self, postgres: PostgresPart | None) -> None:
        if named := self._named_prefect():
            self._use_given("prefect", "PREFECT_API_URL", SecretStr(named))
            self._use({name: os.environ[name] for name in _CREDENTIALS if os.environ.get(name)})
            return
        with self.step("prefect"):
            server = PrefectServer(
                self.home.folder,
                idle_seconds=None,
                database_url=_prefect_database(postgres) if postgres else None,
                port=self.ports.choose("prefect", PREFECT_PORT),
            )
            part = PrefectPart(server)
            self.installation.start(part)
            self._use(part.environment)
        if postgres is None:
            self.installation.add_note(
                "Prefect keeps its own records in SQLite: the database that PENSTOCK_DSN names "
                "is for documents only"
            )

    def _install(self) -> None:
        """In a process of its own, since Prefect reads its settings when it is imported."""
        mark = mark_of(self.installation.id, "install")
        log_path = self.home.logs / "install.log"
        with log_path.open("ab") as log:
            done = subprocess.run(
                [sys.executable, "-m", "deployments.install"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=marked_environment(mark),
                start_new_session=True,
                check=False,
            )
        end_marked(mark, grace_seconds=0)
        if done.returncode:
            raise ServiceError(
                f"the deployments could not be made on {mask_url(os.environ['PREFECT_API_URL'])}. "
                f"The log, {log_path}, ends with:\n{last_lines(log_path)}"
            )

    def _start_worker(self, number: int) -> None:
        name = f"worker-{number}"
        start = ["-m", "prefect", "worker", "start", "--pool", POOL, "--name", name]
        # On SIGTERM it would kill its flow runs at once, and their work would wait for leases.
        part = ProcessPart(
            name,
            [sys.executable, *start],
            self.home.logs,
            self.installation.id,
            grace_seconds=WORKER_GRACE_SECONDS,
            children_first=True,
        )
        self.installation.start(part)

    def _start_standby(self) -> None:
        """A worker that is always there: Valkey wakes it at once, and it takes up what a crashed
        flow run left, while one of Prefect's workers would start with the next flow run."""
        work = ["-m", "entrypoints.cli.main", "worker", "--grace", f"{WORKER_GRACE_SECONDS / 2:g}"]
        part = ProcessPart(
            "standby",
            [sys.executable, *work],
            self.home.logs,
            self.installation.id,
            grace_seconds=WORKER_GRACE_SECONDS,
            # The supervisor sees whether it lives.
            environment={"EXTRACTION_HEALTHCHECK_PORT": "0"},
        )
        self.installation.start(part)

    def _start_api(self, wanted_port: int | None) -> None:
        """On the named port; 0: on any, which is the one of the last start."""
        if wanted_port:
            self.ports.keep("api", wanted_port)
        port = self.ports.choose("api", API_PORT if wanted_port is None else None)
        serve = ["-m", "entrypoints.cli.main", "serve", "--host", LOOPBACK, "--port", str(port)]
        part = ProcessPart(
            "api",
            [sys.executable, *serve],
            self.home.logs,
            self.installation.id,
            address=f"http://{LOOPBACK}:{port}",
            is_ready=lambda: answers_ok(port, "/health", _HEALTH_SECONDS),
        )
        self.installation.start(part)

    def _use_given(self, part: str, variable: str, address: SecretStr) -> None:
        self.installation.add_given(part, mask_url(address.get_secret_value()), variable)
        self._use({variable: address.get_secret_value()})

    def _use(self, variables: dict[str, str]) -> None:
        os.environ.update(variables)
        self.installation.add_environment(variables)


def _prefect_database(postgres: PostgresPart) -> str:
    """A database of its own in the same server, by the driver that Prefect uses."""
    return postgres.server.ensure_database("prefect").replace("+psycopg", "+asyncpg")
