"""Each service tier of each vendor costs what the vendor's page says, in dollars that are written here.

The figures are those of the pages on the dates beside them, typed in by hand, not read from the catalogue:
OpenAI's and Anthropic's pages of prices, Google's of prices and of tiers, and for the others the table of
LiteLLM 1.110.2, which names the pages.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import NamedTuple

import pytest

from specclient.config import Settings
from specclient.prices.prices import Prices
from specclient.types.usage import Usage

PRICES = Prices(Settings())
OPENAI = "https://developers.openai.com/api/docs/pricing", date(2026, 7, 30)
CLAUDE = "https://platform.claude.com/docs/en/about-claude/pricing", date(2026, 11, 27)
GEMINI = "https://ai.google.dev/gemini-api/docs/pricing", date(2026, 11, 27)
TABLE = "https://github.com/BerriAI/litellm, 1.110.2", date(2026, 11, 27)


class Tier(NamedTuple):
    """Dollars per million tokens of a tier: fresh, cached and generated; None if it is not paid by tokens."""

    vendor: str
    model: str
    tier: str | None
    input: str | None
    cached: str | None
    output: str | None
    page: tuple[str, date]
    prompt: int = 10_000


TIERS = (
    Tier("openai", "gpt-5", None, "1.25", "0.125", "10", OPENAI),
    Tier("openai", "gpt-5", "default", "1.25", "0.125", "10", OPENAI),
    Tier("openai", "gpt-5", "flex", "0.625", "0.0625", "5", OPENAI),
    Tier("openai", "gpt-5", "batch", "0.625", "0.0625", "5", OPENAI),
    Tier("openai", "gpt-5", "priority", "2.5", "0.25", "20", OPENAI),
    Tier("openai", "gpt-5", "fast", "2.5", "0.25", "20", OPENAI),
    Tier("openai", "gpt-5", "scale", None, None, None, OPENAI),
    Tier("openai", "gpt-5.4", "flex", "1.25", "0.13", "7.5", OPENAI),
    Tier("openai", "gpt-5.4", None, "5", "0.5", "22.5", OPENAI, 300_000),
    Tier("openai", "gpt-4.1", "priority", "3.5", "0.875", "14", OPENAI),
    Tier("openai", "o3", "flex", "1", "0.25", "4", OPENAI),
    Tier("anthropic", "claude-sonnet-4-5", "standard", "3", "0.3", "15", CLAUDE),
    Tier("anthropic", "claude-sonnet-4-5", "batch", "1.5", "0.15", "7.5", CLAUDE),
    Tier("anthropic", "claude-sonnet-4-5", "priority", None, None, None, CLAUDE),
    Tier("google", "gemini-2.5-pro", "standard", "1.25", "0.125", "10", GEMINI),
    Tier("google", "gemini-2.5-pro", "standard", "2.5", "0.25", "15", GEMINI, 300_000),
    Tier("google", "gemini-2.5-pro", "batch", "0.625", "0.125", "5", GEMINI),
    Tier("google", "gemini-2.5-pro", "flex", "0.625", "0.125", "5", GEMINI),
    Tier("google", "gemini-2.5-pro", "priority", "2.25", "0.225", "18", GEMINI),
    Tier("groq", "openai/gpt-oss-120b", "on_demand", "0.15", "0.075", "0.6", TABLE),
    Tier("groq", "openai/gpt-oss-120b", "flex", "0.15", "0.075", "0.6", TABLE),
    Tier("groq", "openai/gpt-oss-120b", "performance", None, None, None, TABLE),
    Tier("x-ai", "grok-4.20", "batch", "1", "0.16", "2", TABLE),
)  # fmt: skip


@pytest.mark.parametrize("tier", TIERS, ids=lambda tier: f"{tier.model} {tier.tier} {tier.prompt}")
def test_a_tier_costs_what_its_page_says(tier: Tier) -> None:
    usage = Usage(prompt=tier.prompt, completion=1000, cached=4000, traffic=tier.tier)
    at = datetime(2026, 11, 27, tzinfo=UTC)
    cost = PRICES.price(usage, tier.vendor, tier.model, price_provider=tier.vendor, at=at)
    if tier.input is None or tier.cached is None or tier.output is None:
        assert cost.total is None
        assert "no price for" in cost.source or "paid by its reservation" in cost.source
        return
    fresh = (tier.prompt - 4000) * Decimal(tier.input)
    dollars = (fresh + 4000 * Decimal(tier.cached) + 1000 * Decimal(tier.output)).scaleb(-6)
    assert cost.total == dollars, f"{tier.page[0]}, as of {tier.page[1]}"


def test_tokens_written_for_five_minutes_and_for_an_hour() -> None:
    """Anthropic: $3.75 and $6 per million of Claude Sonnet 4.5, half of each in a batch."""
    written = Usage(prompt=10_000, completion=0, cache_write=10_000, cache_write_1h=4000)
    for tier, share in ((None, Decimal(1)), ("batch", Decimal("0.5"))):
        usage = Usage(
            prompt=written.prompt, completion=0, cache_write=10_000, cache_write_1h=4000, traffic=tier
        )
        at = datetime(2026, 11, 27, tzinfo=UTC)
        cost = PRICES.price(usage, "anthropic", "claude-sonnet-4-5", price_provider="anthropic", at=at)
        assert cost.total == (6000 * Decimal("3.75") + 4000 * Decimal(6)).scaleb(-6) * share
