"""What calls cost."""

import pytest

from penstock.errors import ConfigurationError
from penstock.llm.chain import PRICES, Price, cost_of, price_table


def test_prompt_and_completion_tokens_have_their_own_prices() -> None:
    assert Price(1.0, 4.0, 0.5).cost(1_000_000, 500_000, 0) == pytest.approx(3.0)


def test_tokens_from_the_cache_cost_less_and_are_not_counted_twice() -> None:
    assert Price(1.0, 4.0, 0.5).cost(1_000_000, 0, 400_000) == pytest.approx(0.8)


def test_more_cached_tokens_than_prompt_tokens_cost_no_less_than_nothing() -> None:
    assert Price(1.0, 1.0, 0.5).cost(0, 0, 10) >= 0


def test_the_default_models_have_prices() -> None:
    assert set(PRICES) == {"openai/gpt-oss-20b", "openai/gpt-oss-120b"}
    assert all(price.cached < price.prompt < price.completion for price in PRICES.values())


def test_a_price_in_the_settings_replaces_or_completes_the_built_in_ones() -> None:
    table = price_table(("openai/gpt-oss-20b=1/2/0.25", " own/model = 3/4"))
    assert table["openai/gpt-oss-20b"] == Price(1, 2, 0.25)
    assert table["own/model"] == Price(3, 4, 3)
    assert table["openai/gpt-oss-120b"] == PRICES["openai/gpt-oss-120b"]


def test_a_model_without_a_price_costs_nothing() -> None:
    assert cost_of(price_table(()), "unheard-of", 1_000, 1_000, 0) == 0


@pytest.mark.parametrize(
    "entry",
    ["", "own", "own=", "own=1", "own=1/2/3/4", "own=1/two", "own=1/-2", "own=nan/1", "=1/2"],
)
def test_what_is_no_price_is_refused_by_name(entry: str) -> None:
    with pytest.raises(ConfigurationError, match=r"EXTRACTION_PRICES.*is not a price"):
        price_table((entry,))
