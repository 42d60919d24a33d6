"""The answer judge: a model scores a sample of routed answers, in the background and within a budget.

A score is feedback of the giver ``judge``. The judge's calls are recorded like any other, with a tag of their
own, and a budget for a day counts them. A call is never delayed or failed by its judgement: whatever goes
wrong there is logged. Request and answer are held in memory until they are judged; nothing else keeps them.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from typing import Any

from specclient.call.answer_fields import answer_text, output_text
from specclient.call.answer_texts import AnswerTexts
from specclient.call.result import CallResult
from specclient.call.stream import AsyncStream
from specclient.config.judge_table import JUDGE_TAG, JudgeSettings
from specclient.errors import BudgetExceededError, OpenAIError
from specclient.routing.choose.task_classifier import summarize_prompt
from specclient.runtime.background_tasks import BackgroundTasks
from specclient.types import inference_methods
from specclient.types.call import Call
from specclient.types.chat.chat_completion_message import plain_text
from specclient.types.policy import Policy
from specclient.types.request import PerCallOptions, Request

__all__ = ["AnswerJudge", "judged_score"]

logger = logging.getLogger("specclient")

#: Answers that are judged at the same time; further ones are not judged.
_AT_ONCE = 8
#: Characters of the request's end and of the answer's beginning that the judge gets.
_REQUEST, _ANSWER = 12_000, 12_000
_HIGHEST = 10
#: A number at the end, also as "8/10" or "8 out of 10", where the 10 is no score.
_NUMBER = re.compile(r"(?<![\d.-])(\d+(?:\.\d+)?)(?:[\s*(]*(?:/|(?:out )?of\b)[\s*]*10)?\W*$", re.IGNORECASE)
_JUDGED = frozenset({"chat", "completion", "response"})


class AnswerJudge:
    """Judges a sample of routed answers.

    Args:
        settings: the judge's model, share, weight and rubric.
        send: serves the judge's request.
        score: receives the id of the judged call and its score from 0 to 1; it may block.
        tasks: the judgements in progress, which copies of a client share and its end cancels.
        dice: the random numbers by which answers are sampled.
    """

    def __init__(
        self,
        settings: JudgeSettings,
        send: Callable[[Request], Coroutine[Any, Any, CallResult]],
        score: Callable[[str, float], None],
        tasks: BackgroundTasks,
        *,
        dice: random.Random | None = None,
    ) -> None:
        self._settings = settings
        self._send = send
        self._score = score
        self._dice = dice or random.Random()
        self._tasks = tasks
        self._warned = False

    def samples(self, request: Request, policy: Policy) -> bool:
        """Return whether the answer to a routed request is to be judged, by chance.

        Prompts with pictures are not judged, nor are those that may not be sent to the judge by the call's
        policy or permit.
        """
        if request.operation not in _JUDGED or request.options.by_judge:
            return False
        if len(self._tasks) >= _AT_ONCE or self._dice.random() >= self._settings.share:
            return False
        model, permit = self._settings.model, request.options.permit
        allowed = not policy.allow or model.startswith(policy.allow)
        kept_here = policy.local_only and not model.startswith("local/")
        if not allowed or kept_here or model.startswith(policy.deny):
            return False
        return (permit is None or bool(permit.usable((model,)))) and not summarize_prompt(request).files

    def note_answer(self, request: Request, answer: Any) -> None:
        """Judge a complete answer in the background."""
        text = output_text(answer) if request.operation == "response" else answer_text(answer)
        self._begin(request, answer.meta, text)

    def watched(self, request: Request, stream: AsyncStream[Any]) -> AsyncStream[Any]:
        """Return a stream whose answer is judged in the background once it has been read to its end."""
        watched = AsyncStream(self._read(request, stream), lambda: stream.meta, stream.http, stream.dialect)
        watched.cached = stream.cached
        return watched

    async def _read(self, request: Request, stream: AsyncStream[Any]) -> AsyncGenerator[list[Any], None]:
        texts, size, known = AnswerTexts(), 0, 0
        try:
            while True:
                try:
                    batch = await stream.next_batch()
                except StopAsyncIteration:
                    break
                if size < _ANSWER:
                    for chunk in batch:
                        _add_text(texts, chunk)
                    size += sum(map(len, texts.first[known:]))
                    known = len(texts.first)
                yield batch
        finally:
            await stream.close()
        self._begin(request, stream.meta, texts.text)

    def _begin(self, request: Request, call: Call, text: str) -> None:
        if call.status != "ok" or not text.strip():
            return
        self._tasks.begin(self._judge(request, call.id, text))

    async def _judge(self, request: Request, call_id: str, answer: str) -> None:
        try:
            result = await self._send(self._question(prompt_text(request), answer))
            score = judged_score(answer_text(result.unwrap()))
            if score is None:
                self._warn(f"the judge {self._settings.model} gave no number from 0 to 10")
            else:
                await asyncio.to_thread(self._score, call_id, score)
        except BudgetExceededError as error:
            self._warn(f"the judge {self._settings.model} is not asked: {error}")
        except OpenAIError as error:
            self._warn(f"the judge {self._settings.model} failed: {error}")
        except Exception:
            logger.exception("an answer could not be judged")

    def _question(self, prompt: str, answer: str) -> Request:
        material = f"<request>\n{prompt[-_REQUEST:]}\n</request>\n<answer>\n{answer[:_ANSWER]}\n</answer>"
        params = {
            "messages": [
                {"role": "system", "content": self._settings.rubric},
                {"role": "user", "content": material},
            ],
            "max_completion_tokens": self._settings.max_tokens,
        }
        options = PerCallOptions(tags={JUDGE_TAG: "1"}, cache=False, by_judge=True)
        return Request(inference_methods.CHAT, self._settings.model, params, options=options)

    def _warn(self, message: str) -> None:
        """Log a warning the first time."""
        logger.log(logging.DEBUG if self._warned else logging.WARNING, "%s; answers go on unjudged", message)
        self._warned = True


def judged_score(text: str) -> float | None:
    """Return the score from 0 to 1 that a judge's text ends with; None without a number from 0 to 10."""
    found = _NUMBER.search(text.strip())
    if found is None or float(found[1]) > _HIGHEST:
        return None
    return float(found[1]) / _HIGHEST


def prompt_text(request: Request) -> str:
    """Return the text of a request's prompt: of its messages with their roles, or of its only text."""
    params = request.params
    prompt = next((params[name] for name in ("messages", "input", "prompt") if params.get(name)), "")
    if not isinstance(prompt, list | tuple):
        return str(prompt)
    lines = []
    for message in prompt:
        if isinstance(message, Mapping):
            lines.append(f"{message.get('role', '')}: {plain_text(message.get('content'))}")
        else:
            lines.append(str(message))
    return "\n".join(lines)


def _add_text(texts: AnswerTexts, chunk: Any) -> None:
    """Add the text of a chunk of a completion, or of an event of a response."""
    choices = getattr(chunk, "choices", None)
    for choice in choices or ():
        texts.add_choice(choice)
    if choices is None and getattr(chunk, "type", "") == "response.output_text.delta":
        texts.first.append(str(getattr(chunk, "delta", "")))
