"""Checks that a draft and a remote target have the same tokenizer, so that their tokens can be compared."""

from __future__ import annotations

from specclient.call.strategies.context import StrategyContext, unsupported_parameter
from specclient.call.strategies.remote.detokenizer import REPLACEMENT_CHARACTER
from specclient.call.strategies.remote.draft_client import DraftClient, TargetFallbackError
from specclient.call.strategies.remote.scoring import ScoringResult


async def check_first_text(
    context: StrategyContext, draft: DraftClient, prompt: tuple[int, ...], result: ScoringResult, text: str
) -> None:
    """Check that the draft's tokenizer gives the target's first tokens the same text.

    Args:
        prompt: the prompt's tokens.
        result: the target's first tokens.
        text: their text by the target, which ends with a whole character.

    Raises:
        TargetFallbackError, UnsupportedParameterError: it does not.
    """
    if result.finished or not result.new_tokens:
        return
    ids = [token.id for token in result.new_tokens]
    before = await draft.detokenize(prompt)
    after = await draft.detokenize([*prompt, *ids])
    if after == before + text:
        return
    if before.endswith(REPLACEMENT_CHARACTER):  # the text of the first tokens completes that character
        raise TargetFallbackError("the prompt ends in the middle of a character")
    raise different_tokenizers(context)


def different_tokenizers(context: StrategyContext) -> Exception:
    """Return the error for a draft and a target whose token ids differ."""
    strategy = context.strategy
    problem = f"{strategy.draft} and {context.model} have different tokenizers"
    if strategy.kind == "auto":
        return TargetFallbackError(problem)
    return unsupported_parameter(
        f"strategy 'remote' cannot be used: {problem}; name a draft of the target's family, or leave the "
        "strategy out",
        "strategy",
    )
