"""How often and when failed items are tried again, by the settings."""

from penstock.documents import Stage
from penstock.settings import Settings
from penstock.work.retry import Doubling, RetryRule, RetryRules, Steps

TEXT_RETRIES = 3


def retry_rules(settings: Settings) -> RetryRules:
    extraction, embedding = settings.extraction, settings.embedding
    return {
        Stage.TEXT: RetryRule(1 + TEXT_RETRIES, Steps()),
        Stage.EXTRACT: RetryRule(
            extraction.max_attempts,
            Doubling(extraction.retry_base_seconds, extraction.retry_max_seconds),
        ),
        Stage.EMBED: RetryRule(
            embedding.max_attempts,
            Doubling(embedding.retry_base_seconds, embedding.retry_max_seconds),
        ),
    }
