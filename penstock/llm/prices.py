"""What models charge, in US dollars for a million tokens."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import ConfigurationError

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars for a million tokens asked, answered, and asked again from the provider's cache."""

    prompt: float
    completion: float
    cached: float

    def cost(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> float:
        fresh = max(prompt_tokens - cached_tokens, 0)
        dollars = fresh * self.prompt + cached_tokens * self.cached
        return (dollars + completion_tokens * self.completion) / _MILLION


PRICES = {
    "openai/gpt-oss-20b": Price(0.075, 0.30, 0.0375),
    "openai/gpt-oss-120b": Price(0.15, 0.60, 0.075),
}


def price_table(entries: tuple[str, ...]) -> dict[str, Price]:
    """The built-in prices, replaced and completed by `model=prompt/completion[/cached]`."""
    return PRICES | dict(map(_read_price, entries))


def _read_price(entry: str) -> tuple[str, Price]:
    model, _, figures = entry.partition("=")
    try:
        prompt, completion, *rest = [float(figure) for figure in figures.split("/")]
        if rest[1:] or not model.strip():
            raise ValueError
        if not all(0 <= figure < math.inf for figure in (prompt, completion, *rest)):
            raise ValueError
    except ValueError:
        raise ConfigurationError(
            f"EXTRACTION_PRICES: {entry!r} is not a price: write model=prompt/completion or "
            "model=prompt/completion/cached, in dollars for a million tokens"
        ) from None
    return model.strip(), Price(prompt, completion, rest[0] if rest else prompt)


def cost_of(
    prices: Mapping[str, Price], model: str, prompt: int, completion: int, cached: int
) -> float:
    """The cost of one call; nothing for a model whose price nobody named."""
    price = prices.get(model)
    return price.cost(prompt, completion, cached) if price else 0.0
