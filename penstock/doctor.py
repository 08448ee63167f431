"""Checks everything Penstock needs, and says what to do about each problem."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy as sa

from penstock.embed.embedder import build_embedder
from penstock.errors import ConfigurationError, PenstockError, SchemaMismatch, StoreUnavailable
from penstock.home import check_disk
from penstock.redis.client import build_redis_client, mapped_errors
from penstock.runs.lifecycle import run_from, select_runs
from penstock.runs.run import RunStatus
from penstock.search.vectors import look_at_switch
from penstock.settings import (
    RETIRED_MODELS,
    Settings,
    mask_url,
    named_models,
    retired_model_warnings,
    told_database,
)
from penstock.store.database import Database
from penstock.store.migration import HEAD, current_revision
from penstock.store.migration import check as check_schema
from penstock.store.schema import runs

if TYPE_CHECKING:
    from penstock.app import App


Verdict = Literal["ok", "warning", "failed"]
RUNS_SHOWN = 5
LOW_DISK_BYTES = 1024**3
ASK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    what: str
    verdict: Verdict
    detail: str
    advice: str | None = None


def diagnose(settings: Settings, *, prefect: Callable[[], Finding]) -> Iterator[Finding]:
    """Every check, each on its own: one that fails does not hide the next."""
    if settings.waits_for_postgres:
        yield Finding("database", "failed", told_database(settings), "run `penstock up`")
    else:
        yield from _check_store(settings)
    yield _check_redis(settings)
    yield _check_models(settings)
    yield _check_embedder(settings)
    yield prefect()
    yield _check_disk(settings)


def _check_store(settings: Settings) -> Iterator[Finding]:
    database = Database(settings.database_url)
    try:
        connected = _check_database(database)
        yield connected
        if connected.verdict == "ok":
            yield _check_migrations(database)
            yield _check_vectors(database)
            yield from _check_switch(settings, database)
            yield from _check_runs(database)
    finally:
        database.close()


def _check_database(database: Database) -> Finding:
    where = mask_url(database.url)
    try:
        with database.read():
            return Finding("database", "ok", where)
    except PenstockError as error:
        advice = "check PENSTOCK_DSN, or unset it to use SQLite in PENSTOCK_HOME"
        return Finding("database", "failed", str(error), advice)


def _check_migrations(database: Database) -> Finding:
    if current_revision(database) is None:
        return Finding("migrations", "ok", "an empty database; the first command makes its schema")
    try:
        check_schema(database)
    except SchemaMismatch as error:
        return Finding("migrations", "failed", str(error), "the message says what to do")
    return Finding("migrations", "ok", "the schema is this version's")


def _check_vectors(database: Database) -> Finding:
    query = (
        "SELECT vec_version()"
        if database.is_sqlite
        else "SELECT default_version FROM pg_available_extensions WHERE name = 'vector'"
    )
    with database.read() as tx:
        version = tx.execute(sa.text(query)).scalar_one_or_none()
    if version is None:
        advice = "install pgvector on the database server"
        return Finding("vectors", "failed", "the extension `vector` is not available", advice)
    return Finding(
        "vectors", "ok", f"{'sqlite-vec' if database.is_sqlite else 'pgvector'} {version}"
    )


def _check_switch(settings: Settings, database: Database) -> Iterator[Finding]:
    """Nothing for a database or an embedder that cannot be used: other checks say so."""
    if current_revision(database) != HEAD:
        return
    with suppress(ConfigurationError):
        embedder = build_embedder(settings.embedding.backend, settings.embedding.model)
        yield check_vector_switch(database, embedder.identity)


def check_vector_switch(database: Database, identity: str) -> Finding:
    """Whether search uses the vectors that are made now."""
    with database.read() as tx:
        found = look_at_switch(tx, identity)
    if found.done:
        return Finding("search vectors", "ok", found.active)
    advice = "run `penstock backfill --reason vectors --all-tenants`; search then changes over"
    if found.failed:
        advice += ". Those that failed: `penstock jobs list --stage embed --status failed`"
    return Finding("search vectors", "warning", str(found), advice)


def _check_runs(database: Database) -> Iterator[Finding]:
    """Sources whose last run failed, or waits for a setting; nothing for another schema."""
    if current_revision(database) != HEAD:
        return
    newest = sa.select(sa.func.max(runs.c.id)).group_by(runs.c.source_id)
    stopped = sa.or_(runs.c.status == RunStatus.ERROR, runs.c.paused_reason.is_not(None))
    last = select_runs().where(runs.c.id.in_(newest), stopped).order_by(runs.c.id.desc())
    with database.read() as tx:
        found = [run_from(row) for row in tx.execute(last.limit(RUNS_SHOWN))]
    for run in found:
        if run.paused_reason:
            detail = f"run {run.id} of {run.source_name} is paused: {run.paused_reason}"
            advice = f"mend that, then `penstock resume {run.id}`"
        else:
            detail = f"the last run of {run.source_name}, {run.id}, failed: {run.error}"
            advice = f"`penstock run {run.id}` shows each document and why"
        yield Finding("runs", "warning", detail, advice)
    if not found:
        yield Finding("runs", "ok", "no source's last run failed or is paused")


def _check_redis(settings: Settings) -> Finding:
    if settings.redis_url is None:
        return Finding("Redis", "ok", "not configured; the database alone is enough")
    url = settings.redis_url.get_secret_value()
    from redis.exceptions import RedisError

    try:
        client = build_redis_client(url)
        try:
            client.ping()
        finally:
            client.close()
    except (RedisError, ValueError) as error:
        advice = "start it, correct REDIS_URL, or unset REDIS_URL to work without it"
        return Finding("Redis", "failed", f"{mask_url(url)}: {type(error).__name__}", advice)
    return Finding("Redis", "ok", mask_url(url))


def _check_models(settings: Settings) -> Finding:
    if settings.asks_models:
        return _ask_for_models(settings)
    if retired := retired_model_warnings(settings):
        return Finding("models", "warning", "; ".join(retired), "change the settings it names")
    return Finding("models", "ok", "offline rules; no model is asked")


def _ask_for_models(settings: Settings) -> Finding:
    """Ask the endpoint for its list of models, which costs nothing and needs a valid key."""
    # They import httpx, which takes a while.
    from groq import APIConnectionError, APIStatusError

    from penstock.llm.groq import build_groq_client

    key = settings.groq_api_key
    base_url = settings.extraction.base_url
    where = mask_url(base_url) if base_url else "Groq"
    try:
        client = build_groq_client(key.get_secret_value() if key else None, base_url, ASK_SECONDS)
    except ConfigurationError as error:
        return Finding("models", "failed", str(error), "the message says what to do")
    try:
        known = {model.id for model in client.models.list().data}
    except APIStatusError as error:
        if error.status_code in (401, 403):
            detail = f"{where} refuses the key (HTTP {error.status_code})"
            return Finding("models", "failed", detail, "set GROQ_API_KEY to a valid key")
        detail = f"{where} does not list its models (HTTP {error.status_code})"
        return Finding("models", "warning", detail, "check EXTRACTION_BASE_URL if calls fail")
    except (APIConnectionError, ValueError) as error:
        advice = "check the network and EXTRACTION_BASE_URL; EXTRACTION_BACKEND=rules works offline"
        return Finding("models", "failed", f"{where}: {type(error).__name__}", advice)
    finally:
        client.close()
    return _compare_models(settings, where, known)


def _compare_models(settings: Settings, where: str, known: set[str]) -> Finding:
    named = named_models(settings)
    missing = {env: model for env, model in named.items() if model not in known}
    if not missing:
        return Finding("models", "ok", f"{', then '.join(named.values())} at {where}")
    detail = f"{where} does not have " + ", ".join(f"{env}={m}" for env, m in missing.items())
    verdict: Verdict = "failed" if len(missing) == len(named) else "warning"
    advice = [
        f"set {env}={RETIRED_MODELS[model]}" if model in RETIRED_MODELS else f"change {env}"
        for env, model in missing.items()
    ]
    return Finding("models", verdict, detail, "; ".join(advice))


def _check_embedder(settings: Settings) -> Finding:
    try:
        embedder = build_embedder(settings.embedding.backend, settings.embedding.model)
        embedder.embed(["a word"])
    except PenstockError as error:
        return Finding("embedder", "failed", str(error), "the message says what to do")
    return Finding("embedder", "ok", embedder.identity)


def _check_disk(settings: Settings) -> Finding:
    folder = settings.home.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    detail = f"{free / 1024**3:.1f} GB free for {settings.home}"
    if free < LOW_DISK_BYTES:
        advice = "free some space, or move PENSTOCK_HOME: raw bytes and the database need room"
        return Finding("disk", "failed", detail, advice)
    return Finding("disk", "ok", detail)


def check_readiness(app: "App") -> dict[str, dict[str, Any]]:
    """Each dependency, with what is wrong with it."""
    checks: dict[str, Callable[[], object]] = {
        "database": lambda: _check_writable(app),
        "migrations": lambda: check_schema(app.database),
        "raw_store": lambda: app.raw.check(),
    }
    # Where it is not required, everything works without it.
    if app.redis is not None and app.settings.embedding.queue_require_redis:
        checks["redis"] = lambda: _ping_redis(app)
    found: dict[str, dict[str, Any]] = {}
    for name, check in checks.items():
        try:
            check()
            found[name] = {"ok": True}
        except PenstockError as error:
            found[name] = {"ok": False, "detail": str(error)}
    return found


def _check_writable(app: "App") -> None:
    with app.database.read():
        pass
    if not app.database.files:
        return
    try:
        check_disk(app.database.files[0].absolute().parent)
    except OSError as error:
        raise StoreUnavailable(
            f"nothing can be written beside the SQLite file: {error.strerror}. Free space on its "
            "disk, or make it writable"
        ) from error


def _ping_redis(app: "App") -> None:
    assert app.redis is not None
    with mapped_errors(app.redis):
        app.redis.ping()
