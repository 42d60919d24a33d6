"""Let a small model draft an answer and a large model verify it, with two ordinary calls.

python examples/draft_target.py [DRAFT TARGET]     provider/model; local models by default, without a key
"""

import sys

from specclient import OpenAI, speculative_decode, speculative_decode_many

draft, target = sys.argv[1:] or ("local/demo", "local/demo-target")

with OpenAI() as client:
    result = speculative_decode(
        "def fibonacci(n):\n",
        draft=draft,
        target=target,
        task="code",
        client=client,
        max_tokens=64,
        temperature=0,
    )
    print(result.output)
    for name, side in (("draft", result.draft), ("target", result.target)):
        took = "-" if side.latency_s is None else f"{side.latency_s:.2f} s"
        print(f"{name:<7} {side.model:<18} {side.usage.completion} tokens  {took}  ${side.cost}")
    print(f"sent to the target as {result.handed}: {result.reason}")
    print("share of the draft in the answer", result.acceptance, "| total cost", result.cost, "dollars")
    print("the target verified", result.target.call.speculation)  # None if the endpoint does not report it

    # Several prompts concurrently. A failed prompt's result holds its error; the others are not affected.
    prompts = [f"def {name}(items):\n" for name in ("first", "last", "middle")]
    for answer in speculative_decode_many(
        prompts, concurrency=2, draft=draft, target=target, depth=1, client=client, max_tokens=16
    ):
        print(answer.error or repr(answer.output))
