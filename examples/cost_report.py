"""Label calls, and sum up from the ledger what they used and cost."""

from specclient import OpenAI
from specclient.config import load
from specclient.costs.ledger import Ledger
from specclient.costs.reports import report

with OpenAI() as client:
    for team, prompt in (("search", "import json\n"), ("search", "import os\n"), ("ads", "class Queue:\n")):
        client.completions.create(
            model="local/demo", prompt=prompt, max_tokens=16, temperature=0, tags={"team": team}
        )

# The same as `specclient cost report --by tag:team`. Money is Decimal, exact to the nano-dollar.
summed = report(Ledger(load().ledger).rows(), by=("tag:team",))
for line in summed.lines:
    print(line.group[0] or "(none)", line.calls, "calls", line.tokens_out, "tokens", f"${line.cost:f}")
print("total", summed.total.calls, "calls", f"${summed.total.cost:f}", "estimated:", summed.total.estimated)
