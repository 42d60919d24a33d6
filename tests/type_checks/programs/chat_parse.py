"""Structured output of chat completions."""

from openai import ContentFilterFinishReasonError, LengthFinishReasonError, OpenAI
from openai.types.chat import ParsedChatCompletion
from pydantic import BaseModel


class Step(BaseModel):
    explanation: str
    output: str


class Solution(BaseModel):
    steps: list[Step]
    answer: str


def solve(client: OpenAI, problem: str) -> Solution | None:
    try:
        completion: ParsedChatCompletion[Solution] = client.chat.completions.parse(
            model="gpt-4.1", messages=[{"role": "user", "content": problem}], response_format=Solution
        )
    except LengthFinishReasonError as error:
        print(error.completion.usage)
        return None
    except ContentFilterFinishReasonError:
        return None
    message = completion.choices[0].message
    if message.refusal:
        print(message.refusal)
    return message.parsed


solution = solve(OpenAI(), "8x + 7 = -23")
if solution is not None:
    print([step.output for step in solution.steps], solution.answer)
