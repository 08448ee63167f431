"""The chain of models, from settings."""

from typing import TYPE_CHECKING

from penstock.errors import ConfigurationError
from penstock.settings import Settings
from penstock.store.database import Database

if TYPE_CHECKING:
    from redis import Redis

    from penstock.llm.chain import ModelChain
    from penstock.llm.cleaning import Caps
    from penstock.llm.ratelimit import RateLimit


def build_model_chain(
    settings: Settings, database: Database, redis: "Redis | None", caps: "Caps"
) -> "ModelChain":
    """The models that are asked, one after the other."""
    from penstock.llm.asking import Asker
    from penstock.llm.breaker import Breaker
    from penstock.llm.chain import ChainSettings, ModelChain
    from penstock.llm.groq_client import build_groq_client
    from penstock.llm.modes import Modes
    from penstock.llm.prices import price_table
    from penstock.pipeline.ledger import StoreLedger

    limits = settings.extraction
    key = settings.groq_api_key
    chain = ChainSettings(
        limits.primary_model,
        limits.fallback_model,
        limits.confidence_threshold,
        limits.max_tokens,
        limits.max_input_chars,
        limits.concurrency,
        caps,
        price_table(limits.prices),
    )
    unpriced = [model for model in chain.models if model not in chain.prices]
    if settings.max_cost_usd_per_run is not None and unpriced:
        raise ConfigurationError(
            f"PENSTOCK_MAX_COST_USD_PER_RUN needs the price of {' and '.join(unpriced)}: "
            "name it in EXTRACTION_PRICES"
        )
    client = build_groq_client(
        key.get_secret_value() if key else None,
        limits.base_url,
        limits.timeout_seconds,
        connections=limits.concurrency,
    )
    asker = Asker(
        client,
        _rate_limit(redis),
        Breaker(),
        Modes(limits.reasoning_effort),
        concurrency=limits.concurrency,
    )
    most = settings.max_cost_usd_per_run
    return ModelChain(chain, asker, StoreLedger(database, limits.version, most))


def _rate_limit(redis: "Redis | None") -> "RateLimit":
    from penstock.llm.buckets import LocalRateLimit
    from penstock.llm.shared_buckets import SharedRateLimit

    return LocalRateLimit() if redis is None else SharedRateLimit(redis)
