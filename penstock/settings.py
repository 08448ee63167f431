"""One typed tree of settings, read from the environment and an optional `.env` when asked for.

Nothing is read at import. An unknown name with one of our prefixes stops the start: a misspelt
setting that is silently ignored is how backlogs get lost.
"""

import difflib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from dotenv import dotenv_values
from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from penstock.errors import ConfigurationError

RETIRED_MODELS = {
    "llama-3.1-8b-instant": "openai/gpt-oss-20b",
    "llama-3.3-70b-versatile": "openai/gpt-oss-120b",
}
_OWN_PREFIXES = ("PENSTOCK_", "EXTRACTION_", "EMBEDDING_")
_BACKEND = re.compile(r"wordllama|hash|[^:]+:[^\W\d]\w*")
_S3_PREFIX = re.compile(r"(?:(?!s3:)[^=]+=)?s3://[A-Za-z0-9][A-Za-z0-9._-]{1,254}/(?:.*/)?")
# An absolute path, but not in a URL: after a space, a quote or a bracket. SQLite's URLs have one.
_PATH = re.compile(r"""(?<![\w/:.…~-])~?/[^\s/'"`(),;:][^\s'"`(),;:]*""")
_SQLITE_FILE = re.compile(r"sqlite[\w+]*:///([^?]+)")
_SQLITE = re.compile(r"(\bsqlite[\w+]*:)/\S*")
_SECRET_PAIR = re.compile(r"([?&][^=&]*(?:key|password|secret|token)[^=&]*=)[^&]*", re.IGNORECASE)

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
# A hundred years at most: a date that far back still exists.
Days = Annotated[int, Field(ge=0, le=36_500)]


def _split_names(value: object) -> object:
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return value


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_names)]


def _check_backends(value: str) -> str:
    names = [name.strip() for name in value.split(",")]
    if all(map(_BACKEND.fullmatch, names)):
        return ",".join(names)
    advice = "use wordllama, hash, or an embedder of your own: file.py:Name or module:Name"
    raise PydanticCustomError("embedding_backend", advice)


def _check_prefixes(values: tuple[str, ...]) -> tuple[str, ...]:
    if all(map(_S3_PREFIX.fullmatch, values)):
        return values
    advice = (
        "write each as s3://bucket/, s3://bucket/prefix/ or tenant=s3://bucket/prefix/, with a "
        "slash at the end: without it, a prefix is the beginning of other folders too"
    )
    raise PydanticCustomError("s3_prefix", advice)


S3Prefixes = Annotated[Names, AfterValidator(_check_prefixes)]
EmbeddingBackends = Annotated[str, AfterValidator(_check_backends)]


class Variable(NamedTuple):
    """An environment variable, and the field of the tree that it sets."""

    name: str
    field: str
    section: str | None
    description: str


class _Section(BaseSettings):
    model_config = SettingsConfigDict(
        env_file=".env", env_ignore_empty=True, extra="ignore", frozen=True
    )


class ExtractionSettings(_Section):
    """LLM extraction: `EXTRACTION_*`."""

    model_config = SettingsConfigDict(env_prefix="EXTRACTION_")

    enabled: bool = Field(
        False, description="Extract nodes that come in over HTTP (runs always do)"
    )
    mode: Literal["async", "sync"] = Field(
        "async", description="async: embed at once; sync: extract first"
    )
    version: str = Field("1.0.0", description="Bump to have older nodes extracted again")
    profile: str | None = Field(
        None, description="Profile of nodes that name none; empty: found from their content"
    )
    backend: Literal["auto", "groq", "rules"] = Field(
        "auto", description="Who extracts; auto: models if there is a key or a base URL, else rules"
    )
    base_url: str | None = Field(
        None, description="A compatible endpoint; one that ends in /v1 is used as it stands"
    )
    primary_model: str = Field("openai/gpt-oss-20b", description="Asked first")
    fallback_model: str = Field(
        "openai/gpt-oss-120b", description="Asked when the first is not enough"
    )
    confidence_threshold: float = Field(
        0.65, ge=0, le=1, description="Below this the fallback model is asked"
    )
    max_tokens: Count = Field(1024, description="Longest answer")
    max_input_chars: Count = Field(12_000, description="Longer texts are cut before the call")
    max_attempts: Count = Field(2, description="Attempts of an item, each may ask both models")
    retry_base_seconds: Positive = Field(10, description="First retry delay; doubles")
    retry_max_seconds: Positive = Field(60, description="Longest retry delay")
    worker_poll_interval: Positive = Field(
        1.0, description="Seconds between looks at an empty queue"
    )
    healthcheck_port: int = Field(
        8080, ge=0, le=65535, description="Worker health endpoint; 0 switches it off"
    )
    concurrency: Count = Field(16, description="Calls to the model under way at once")
    timeout_seconds: Positive = Field(60, description="A call that takes longer is given up")
    reasoning_effort: Literal["low", "medium", "high"] = Field(
        "low", description="For models that reason; what they think counts as tokens"
    )
    prices: Names = Field(
        (), description="Further prices: model=prompt/completion[/cached] in $ per million, …"
    )
    profiles: Names = Field(
        (), description="Modules or .py files with own profiles, separated by commas"
    )
    max_primary_skills: Count = Field(12, description="Cap of primary_skills")
    max_recent_titles: Count = Field(3, description="Cap of recent_job_titles")
    max_certifications: Count = Field(10, description="Cap of certifications")
    max_industries: Count = Field(5, description="Cap of industries")


class EmbeddingSettings(_Section):
    """Embedding: `EMBEDDING_*`."""

    model_config = SettingsConfigDict(env_prefix="EMBEDDING_")

    asynchronous: bool = Field(
        True,
        validation_alias="EMBEDDING_ASYNC",
        description="false: embed inside the HTTP request",
    )
    backend: EmbeddingBackends = Field(
        "wordllama",
        description="Who makes the vectors: wordllama, hash, or your own as file.py:Name or "
        "module:Name. After a comma: who made older ones, which search may still use",
    )
    model: str | None = Field(None, description="Model of the backend; empty: its own default")
    passage_chars: int = Field(
        1000,
        ge=200,
        le=100_000,
        description="Longest passage: longer texts are cut, and each passage has its own vector",
    )
    max_attempts: Count = Field(5, description="Attempts before an item is a dead letter")
    retry_base_seconds: Positive = Field(10, description="First retry delay; doubles")
    retry_max_seconds: Positive = Field(300, description="Longest retry delay")
    worker_poll_interval: Positive = Field(
        1.0, description="Seconds between looks at an empty queue"
    )
    queue_max_depth: Count = Field(5000, description="Intake answers 429 above this many items")
    tenant_max_pending: Count = Field(2000, description="The same for one tenant")
    queue_require_redis: bool = Field(
        True, description="With REDIS_URL set and Redis down: refuse intake (503)"
    )


class Settings(_Section):
    """The whole tree. Build it with `load_settings`."""

    model_config = SettingsConfigDict(env_prefix="PENSTOCK_", populate_by_name=True)

    home: Path = Field(Path(".penstock"), description="Folder of all embedded state")
    dsn: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("PENSTOCK_DSN", "ACTIVEKG_DSN"),
        description="Database address; empty: SQLite in the home folder",
    )
    raw_folder: Path | None = Field(None, description="Folder of raw bytes; empty: the home folder")
    raw_store: str | None = Field(
        None,
        pattern=r"^s3://[^/]+",
        description="Bucket of raw bytes, as s3://bucket/prefix; empty: the raw folder",
    )
    s3_endpoint_url: str | None = Field(
        None, description="A server that speaks S3 (MinIO, …); empty: AWS"
    )
    s3_region: str | None = Field(None, description="Region of buckets; empty: as AWS has it")
    s3_access_key_id: SecretStr | None = Field(
        None, description="Key of the S3 account; empty: as AWS tools find it"
    )
    s3_secret_access_key: SecretStr | None = Field(
        None, description="Secret of the S3 account; empty: as AWS tools find it"
    )
    s3_session_token: SecretStr | None = Field(
        None, description="Session of a temporary S3 key; empty: none"
    )
    redis_url: SecretStr | None = Field(
        None, validation_alias="REDIS_URL", description="Redis or Valkey; empty: none"
    )
    groq_api_key: SecretStr | None = Field(
        None,
        validation_alias="GROQ_API_KEY",
        description="The key of a Groq account, for its models",
    )
    node_batch_max: Count = Field(
        200, validation_alias="NODE_BATCH_MAX", description="Nodes in one POST /nodes/batch"
    )
    tenant: str = Field("default", description="Tenant of commands that name none")
    lease_seconds: Positive = Field(
        60, description="A claim not renewed for this long is given back"
    )
    heartbeat_seconds: Positive = Field(10, description="How often a worker renews its claims")
    sweep_seconds: Positive = Field(30, description="How often expired claims are looked for")
    max_rescues: Count = Field(5, description="Times an item may be taken from a dead worker")
    job_timeout_seconds: Positive = Field(1800, description="Longest time one claim may take")
    faults: str | None = Field(
        None, description="For tests of recovery: points at which this process fails on purpose"
    )
    max_failed: float = Field(
        1.0,
        ge=0,
        le=1,
        description="A run fails when more than this share of its documents does, or all of them",
    )
    queue_age_seconds: Positive = Field(
        600, description="Work that waits longer asks for one more `process` flow"
    )
    batch_size: Count = Field(200, description="Documents claimed together")
    backfill_window: Count = Field(
        1000, description="Items of backfills that may be waiting or under way at once"
    )
    text_processes: Count = Field(
        default_factory=lambda: os.cpu_count() or 1,
        description="Child processes for parsing and the offline rules",
    )
    text_timeout_seconds: float = Field(
        300, ge=10, description="A document that parses longer is stopped"
    )
    max_document_bytes: Count = Field(50 * 1024 * 1024, description="Larger documents are refused")
    allow_private_addresses: bool = Field(
        False, description="Let the crawler reach private and loopback addresses"
    )
    crawl_delay_seconds: float = Field(0.5, ge=0, description="Pause between requests to one host")
    crawl_concurrency: Count = Field(4, description="Requests under way at once to one host")
    crawl_threads: Count = Field(
        8, description="Threads that fetch and compare; some wait for their host's turn"
    )
    crawl_contact: str | None = Field(
        None, description="Address or URL in the User-Agent, by which site owners can reach you"
    )
    payload_roots: Names = Field(
        (), description="Folders below which a payload_ref may name a file, separated by commas"
    )
    extractors: Names = Field(
        (), description="Modules or .py files with own text extractors, separated by commas"
    )
    max_cost_usd_per_run: Positive | None = Field(
        None, description="A run that has cost this much in calls to models pauses; empty: no limit"
    )
    api_jwt_secret: SecretStr | None = Field(
        None, min_length=32, description="Secret of HS256 tokens; with it, the API asks for tokens"
    )
    api_jwt_public_key: Path | None = Field(
        None, description="File with the public key of RS256 tokens; with it, the API asks for them"
    )
    api_jwt_audience: str | None = Field(None, description="Only tokens for this audience")
    api_jwt_issuer: str | None = Field(None, description="Only tokens of this issuer")
    api_requests_per_minute: int = Field(
        6000, ge=0, description="Requests a tenant may make in a minute, with tokens; 0: no limit"
    )
    api_max_request_bytes: Count = Field(
        256 * 1024 * 1024, description="Larger requests are refused; uploads are the largest"
    )
    api_max_json_bytes: Count = Field(16 * 1024 * 1024, description="The same for JSON bodies")
    api_cors_origins: Names = Field(
        (), description="Web sites whose pages may call the API, separated by commas; empty: none"
    )
    api_s3_prefixes: S3Prefixes = Field(
        (),
        description="Places in S3 that callers of the API may name in a source or a payload_ref, "
        "as s3://bucket/prefix/ or, for one tenant, tenant=s3://bucket/prefix/, separated by "
        "commas; empty: none",
    )
    upload_max_files: Count = Field(50, description="Files in one upload")
    keep_events_days: Days = Field(
        30, description="`maintain` forgets lines of logs after this many days; 0: never"
    )
    keep_jobs_days: Days = Field(
        30, description="The same for jobs that are complete or cancelled; 0: never"
    )
    keep_dead_letters_days: Days = Field(
        90, description="The same for jobs that failed, with their history; 0: never"
    )
    keep_run_documents_days: Days = Field(
        180, description="The same for the documents of ended runs; their counts stay; 0: never"
    )
    keep_model_calls_days: Days = Field(
        0, description="The same for calls to models, which hold what was spent; 0: never"
    )
    keep_expired_raw_days: Days = Field(
        90, description="Raw bytes go this many days after their document expired; 0: never"
    )
    keep_old_raw_days: Days = Field(
        30, description="The same for bytes that nothing refers to, by their age; 0: never"
    )
    server_idle_seconds: float = Field(
        900, ge=0, description="The local Prefect server stops after this long unused; 0: never"
    )
    extraction: ExtractionSettings = Field(default_factory=ExtractionSettings)
    embedding: EmbeddingSettings = Field(default_factory=EmbeddingSettings)

    @property
    def asks_models(self) -> bool:
        """Whether extraction is done by models; otherwise the offline rules do it."""
        backend = self.extraction.backend
        named = self.groq_api_key is not None or self.extraction.base_url is not None
        return backend == "groq" or (backend == "auto" and named)

    @property
    def asks_for_tokens(self) -> bool:
        """Whether the API requires a token."""
        return self.api_jwt_secret is not None or self.api_jwt_public_key is not None

    @property
    def folders(self) -> tuple[Path, ...]:
        """Folders, and the file of the database, that may appear in messages."""
        folders = (self.home,) if self.raw_folder is None else (self.raw_folder, self.home)
        file = _SQLITE_FILE.match("" if self.dsn is None else self.dsn.get_secret_value())
        return folders if file is None else (Path(file[1]), *folders)

    @property
    def postgres_folder(self) -> Path:
        """Where the Postgres of `penstock up` has its data."""
        return self.home.absolute() / "postgres"

    @property
    def sqlite_file(self) -> Path:
        return self.home.absolute() / "penstock.db"

    @property
    def waits_for_postgres(self) -> bool:
        """Whether the data are in our own Postgres, and its address is not known."""
        return self.dsn is None and self.postgres_folder.is_dir()

    @property
    def database_url(self) -> str:
        """The address SQLAlchemy is given."""
        if self.waits_for_postgres:
            # An empty SQLite file beside the data would look as if they were lost.
            older = f" (sqlite:///{self.sqlite_file} has what was ingested before it)"
            raise ConfigurationError(
                f"the data of {self.home.absolute()} are in its own Postgres, which is not "
                "running: run `penstock up`, or name another database in PENSTOCK_DSN"
                f"{older if self.sqlite_file.exists() else ''}"
            )
        if self.dsn is None:
            return f"sqlite:///{self.sqlite_file}"
        return _with_driver(self.dsn.get_secret_value())


SECTIONS: dict[str | None, type[_Section]] = {
    None: Settings,
    "extraction": ExtractionSettings,
    "embedding": EmbeddingSettings,
}


def load_settings(**overrides: Any) -> Settings:
    """Read the environment and `.env`; `overrides` win over both.

    Raises ConfigurationError that names each unknown or unusable setting.
    """
    _refuse_unknown_names()
    try:
        settings = Settings(**overrides)
    except ValidationError as error:
        raise ConfigurationError(_explain(error)) from None
    if settings.heartbeat_seconds * 2 > settings.lease_seconds:
        raise ConfigurationError(
            f"PENSTOCK_HEARTBEAT_SECONDS={settings.heartbeat_seconds:g} is too long for "
            f"PENSTOCK_LEASE_SECONDS={settings.lease_seconds:g}: set the heartbeat to at most half "
            "the lease, or live workers lose their claims"
        )
    return settings


def known_names() -> dict[str, str]:
    """Every environment variable we read, with its description."""
    return {name: description for name, _, _, description in list_variables()}


def retired_model_warnings(settings: Settings) -> list[str]:
    """One sentence for each configured model name that Groq has shut down."""
    return [
        f"{env}={model} was shut down by Groq on 2026-08-16; set {env}={RETIRED_MODELS[model]}"
        for env, model in named_models(settings).items()
        if model in RETIRED_MODELS
    ]


def named_models(settings: Settings) -> dict[str, str]:
    """The configured models, by the setting that names each."""
    extraction = settings.extraction
    return {
        "EXTRACTION_PRIMARY_MODEL": extraction.primary_model,
        "EXTRACTION_FALLBACK_MODEL": extraction.fallback_model,
    }


def masked(settings: Settings) -> dict[str, Any]:
    """Effective values with every secret hidden, for people to read."""
    plain = settings.model_dump(mode="json")
    plain["dsn"] = told_database(settings)
    if settings.redis_url is not None:
        plain["redis_url"] = mask_url(settings.redis_url.get_secret_value())
    if settings.s3_endpoint_url is not None:
        plain["s3_endpoint_url"] = mask_url(settings.s3_endpoint_url)
    for name in ("groq_api_key", "s3_access_key_id", "s3_secret_access_key", "s3_session_token"):
        plain[name] = "********" if getattr(settings, name) else None
    return plain


def told_database(settings: Settings) -> str:
    """The database for people to read, also when it cannot be used now."""
    if settings.waits_for_postgres:
        return f"Postgres in {settings.postgres_folder}, not running (penstock up)"
    return mask_url(settings.database_url)


def effective_values(settings: Settings) -> list[tuple[str, Any, str]]:
    """Every environment variable with its value in effect (masked) and its description."""
    values = masked(settings)
    return [
        (name, (values if section is None else values[section])[field], description)
        for name, field, section, description in list_variables()
    ]


def mask_url(url: str) -> str:
    """The same address with its password, and any secret in its query, hidden."""
    without_password = re.sub(r"(://[^:/@]*):[^@]*@", r"\1:********@", url)
    return re.sub(_SECRET_PAIR, r"\1********", without_password)


def hide_paths(text: str, folders: Iterable[Path] = ()) -> str:
    """The same text without paths; `folders` are replaced by name, since they may have spaces."""
    for folder in folders:
        text = text.replace(str(folder.absolute()), "/…")
    return _PATH.sub("…", _SQLITE.sub(r"\1…", text))


def list_variables() -> Iterator[Variable]:
    """Every environment variable; a field with two names is there twice."""
    for part, section in SECTIONS.items():
        prefix = section.model_config.get("env_prefix", "")
        for field, info in section.model_fields.items():
            if field not in SECTIONS:
                for name in _env_names(prefix, field, info.validation_alias):
                    yield Variable(name, field, part, info.description or "")


def _with_driver(url: str) -> str:
    """A plain Postgres address with the driver we use."""
    for plain in ("postgres://", "postgresql://"):
        if url.startswith(plain):
            return "postgresql+psycopg://" + url.removeprefix(plain)
    return url


def _env_names(prefix: str, name: str, alias: Any) -> list[str]:
    if isinstance(alias, AliasChoices):
        return [str(choice) for choice in alias.choices]
    return [alias] if isinstance(alias, str) else [f"{prefix}{name}".upper()]


def _refuse_unknown_names() -> None:
    known = known_names()
    present = {*os.environ, *dotenv_values(".env")}
    for name in sorted(present):
        if name.startswith(_OWN_PREFIXES) and name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else "`penstock config` lists all names"
            raise ConfigurationError(f"unknown setting {name}: {hint}")


def _find_field(section: type[_Section], prefix: str, name: str) -> FieldInfo | None:
    """By its own name or by that of its environment variable."""
    for field, info in section.model_fields.items():
        if name in (field, *_env_names(prefix, field, info.validation_alias)):
            return info
    return None


def _is_secret(info: FieldInfo | None) -> bool:
    """An unknown field may hold a secret too."""
    return info is None or "SecretStr" in str(info.annotation)


def _explain(error: ValidationError) -> str:
    lines = []
    for problem in error.errors():
        section = next(s for s in SECTIONS.values() if s.__name__ == error.title)
        name = str(problem["loc"][-1])
        prefix = section.model_config.get("env_prefix", "")
        info = _find_field(section, prefix, name)
        env = name if info is None else _env_names(prefix, name, info.validation_alias)[0]
        given = "" if _is_secret(info) else f"={problem['input']}"
        lines.append(f"setting {env}{given} is not usable: {problem['msg']}")
    return "\n".join(lines)
