"""The first request of an answer: sends the prompt in a form whose tokens are known."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from specclient.call.strategies.remote.draft_client import DraftClient, TargetFallbackError
from specclient.call.strategies.remote.rendered_chat import RenderedChat
from specclient.call.strategies.remote.scoring import ScoringFormat, ScoringRequest


class FirstPrompt(NamedTuple):
    """A prompt tokenized by the draft, and the request that sends it to the target.

    Attributes:
        ids: the prompt's tokens.
        text: the prompt as sent to a target that accepts text only.
        scoring: the request. Its ``prompt`` is None where the target tokenizes the text itself.
    """

    ids: tuple[int, ...]
    text: str
    scoring: ScoringRequest


async def first_prompt(
    draft: DraftClient,
    form: ScoringFormat,
    prompt: str | list[int],
    chat: RenderedChat | None,
    scoring: ScoringRequest,
) -> FirstPrompt:
    """Tokenize a prompt with the draft's tokenizer.

    Args:
        draft: the draft model.
        form: the target's format.
        prompt: text or token ids.
        chat: the chat rendered as ``prompt``, which contains its special tokens, so that none may be added;
            None for other prompts.
        scoring: the request's other fields.

    Raises:
        TargetFallbackError: the draft failed, or the target would add special tokens in a way that the text
            cannot make up for.
    """
    if not isinstance(prompt, str):
        ids = tuple(prompt)
        text = await draft.detokenize(ids) if form.text_only else ""
        return FirstPrompt(ids, text, replace(scoring, prompt=ids, text=text))
    if chat is None:
        ids = await draft.tokenize(prompt)
        return FirstPrompt(ids, prompt, replace(scoring, prompt=None, text=prompt))
    ids = await draft.tokenize(prompt, special_tokens=False)
    if form.takes_special_tokens:
        request = replace(scoring, prompt=None, text=prompt, special_tokens=False)
        return FirstPrompt(ids, prompt, request)
    if not form.text_only:
        return FirstPrompt(ids, prompt, replace(scoring, prompt=ids, text=prompt))
    text = await _text_before_special_tokens(draft, chat, ids)
    return FirstPrompt(ids, text, replace(scoring, prompt=None, text=text))


async def _text_before_special_tokens(draft: DraftClient, chat: RenderedChat, ids: tuple[int, ...]) -> str:
    """Return the text that becomes the prompt's tokens when special tokens are added to it.

    A tokenizer adds the start token that most templates write themselves; it must not be there twice.
    """
    start = chat.template.special_tokens.get("bos_token") or ""
    for text in dict.fromkeys((chat.prompt.removeprefix(start), chat.prompt)):
        if text and await draft.tokenize(text) == ids:
            return text
    raise TargetFallbackError("the special tokens that the target adds to a text differ from the template's")
