"""Label calls, and sum their usage and cost from the ledger."""

from specclient import OpenAI

with OpenAI() as client:
    for team, prompt in (("search", "import json\n"), ("search", "import os\n"), ("ads", "class Queue:\n")):
        client.completions.create(
            model="local/demo", prompt=prompt, max_tokens=16, temperature=0, tags={"team": team}
        )

    # The same as `specclient cost report --by tag:team`. Costs are Decimal, exact to the nano-dollar.
    summed = client.costs.report("tag:team")
    for line in summed.lines:
        print(line.group[0] or "(none)", line.calls, "calls", line.tokens_out, "tokens", f"${line.cost:f}")
    total = summed.total
    print("total", total.calls, "calls", f"${total.cost:f}", "estimated:", total.estimated)

    # Speed-up compared with the target alone, and the assumption on which it is based.
    for saving in client.costs.savings():
        print(saving.group, "speedup", saving.speedup and f"{saving.speedup:.1f}:", saving.latency_assumption)
