"""Request structured answers, complete and streamed: python structured.py [BASE_URL]."""

import sys

from pydantic import BaseModel

from specclient import OpenAI


class Step(BaseModel):
    """One step of a plan."""

    title: str
    minutes: int


class Plan(BaseModel):
    """The requested output: a plan as a list of steps."""

    steps: list[Step]


ASK = [{"role": "user", "content": "Plan how to repot a fig tree."}]

with OpenAI(base_url=sys.argv[1] if len(sys.argv) > 1 else None) as client:
    answer = client.chat.completions.parse(model="gpt-4.1-mini", messages=ASK, response_format=Plan)
    plan = answer.choices[0].message.parsed
    print(plan, "cost", answer.meta.cost.total)

    with client.chat.completions.stream(model="gpt-4.1-mini", messages=ASK, response_format=Plan) as stream:
        for event in stream:
            if event.type == "content.delta":
                print(event.parsed, end="\r")  # the part of the plan received so far
    print(stream.get_final_completion().choices[0].message.parsed)
