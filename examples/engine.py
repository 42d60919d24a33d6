"""Use the local engine directly: a complete answer, then a stream that marks the drafted text.

python examples/engine.py [TARGET [DRAFT]]     folders or hub ids; the bundled pair by default
"""

import asyncio
import sys
from pathlib import Path

import specclient_local
from specclient_local import Engine

PROMPT = "def fibonacci(n):\n"


async def show(engine: Engine) -> None:
    """Stream an answer and print the accepted drafted text in brackets."""
    async for piece in engine.astream(PROMPT, max_tokens=48):
        for text, drafted in piece.segments:
            print(f"[{text}]" if drafted else text, end="", flush=True)
    print()


def main() -> None:
    """Load the pair and generate two answers."""
    bundled = Path(specclient_local.__file__).parent / "bundled"
    target, draft = [*sys.argv[1:], None][:2] if sys.argv[1:] else (bundled / "target", bundled / "draft")
    with Engine.load(target, draft=draft) as engine:
        answer = engine.generate(PROMPT, max_tokens=96, temperature=0)
        figures, seconds = answer.speculation, answer.timings.engine_s
        print(PROMPT + answer.text)
        print(f"{len(answer.token_ids)} tokens in {figures.steps} passes, {seconds:.2f} s, {figures.method}")
        asyncio.run(show(engine))


if __name__ == "__main__":
    main()
