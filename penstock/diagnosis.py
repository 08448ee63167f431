"""Looks at everything Penstock needs, and says what to do about each thing that is not right."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from penstock.errors import ConfigurationError, PenstockError, SchemaMismatch
from penstock.settings import (
    RETIRED_MODELS,
    Settings,
    mask_url,
    retired_model_warnings,
    told_database,
)
from penstock.store.database import Database
from penstock.store.migration import HEAD, current_revision
from penstock.store.migration import check as check_schema
from penstock.work.redis_client import build_redis_client

Verdict = Literal["ok", "warning", "failed"]
LOW_DISK_BYTES = 1024**3
ASK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

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
    import sqlalchemy as sa

    query = (
        "SELECT vec_version()"
        if database.is_sqlite
        else "SELECT default_version FROM pg_available_extensions WHERE name = 'vector'"
    )
    with database.read() as tx:
        version = tx.execute(sa.text(query)).scalar_one_or_none()
    if version is None:
        advice = "install pgvector on the database server"
        return Finding("vectors", "failed", "the extension `vector` is not to be had", advice)
    return Finding(
        "vectors", "ok", f"{'sqlite-vec' if database.is_sqlite else 'pgvector'} {version}"
    )


def _check_switch(settings: Settings, database: Database) -> Iterator[Finding]:
    """Nothing is said about a database, or an embedder, that cannot be used; others say it."""
    from penstock.embed.embedder import build_embedder

    if current_revision(database) != HEAD:
        return
    with suppress(ConfigurationError):
        embedder = build_embedder(settings.embedding.backend, settings.embedding.model)
        yield check_vector_switch(database, embedder.identity)


def check_vector_switch(database: Database, identity: str) -> Finding:
    """Whether search uses the vectors that are made now."""
    from penstock.search.identity import look_at_switch

    with database.read() as tx:
        found = look_at_switch(tx, identity)
    if found.done:
        return Finding("search vectors", "ok", found.active)
    advice = "run `penstock backfill --reason vectors --all-tenants`; search then changes over"
    if found.failed:
        advice += ". Those that failed: `penstock jobs list --stage embed --status failed`"
    return Finding("search vectors", "warning", str(found), advice)


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
        advice = "start it, mend REDIS_URL, or unset REDIS_URL to work without it"
        return Finding("Redis", "failed", f"{mask_url(url)}: {type(error).__name__}", advice)
    return Finding("Redis", "ok", mask_url(url))


def _check_models(settings: Settings) -> Finding:
    if settings.asks_models:
        return _ask_for_models(settings)
    if retired := retired_model_warnings(settings):
        return Finding("models", "warning", "; ".join(retired), "change the settings it names")
    return Finding("models", "ok", "offline rules; no model is asked")


def _ask_for_models(settings: Settings) -> Finding:
    """Asks the endpoint for its list of models, which costs nothing and needs a valid key."""
    from groq import APIConnectionError, APIStatusError

    from penstock.llm.groq_client import build_groq_client

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
    extraction = settings.extraction
    named = {
        "EXTRACTION_PRIMARY_MODEL": extraction.primary_model,
        "EXTRACTION_FALLBACK_MODEL": extraction.fallback_model,
    }
    missing = {env: model for env, model in named.items() if model not in known}
    if not missing:
        models = f"{extraction.primary_model}, then {extraction.fallback_model}"
        return Finding("models", "ok", f"{models} at {where}")
    detail = f"{where} does not have " + ", ".join(f"{env}={m}" for env, m in missing.items())
    verdict: Verdict = "failed" if len(missing) == len(named) else "warning"
    advice = [
        f"set {env}={RETIRED_MODELS[model]}" if model in RETIRED_MODELS else f"change {env}"
        for env, model in missing.items()
    ]
    return Finding("models", verdict, detail, "; ".join(advice))


def _check_embedder(settings: Settings) -> Finding:
    from penstock.embed.embedder import build_embedder

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
