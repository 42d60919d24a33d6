"""Let a small local model draft for a large model behind a server, which verifies every token.

python examples/strategies.py [DRAFT]     a model of the target's family; by default that of the bundled pair
"""

import subprocess
import sys

from specclient import OpenAI, Provider, Strategy

if sys.argv[1:]:
    draft = sys.argv[1]
else:
    from specclient_local.api.backend import BUNDLED

    draft = f"local/{BUNDLED / 'draft'}"

serve = [sys.executable, "-m", "specclient_cli.main", "serve", "--model", "local/demo-target", "--port", "0"]
with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - our own
    try:
        url = next(line.split()[1] for line in server.stdout or () if line.split()[:1] == ["at"])
        with OpenAI(providers=[Provider(name="specclient", base_url=url)]) as client:
            ask = {"model": "specclient/local/demo-target", "max_tokens": 48, "temperature": 0}

            # The target scores the draft's tokens and accepts those that it would have generated itself.
            text = {**ask, "prompt": "def fibonacci(n):\n"}
            alone = client.completions.create(**text)
            r = client.completions.create(**text, strategy=Strategy(kind="remote", draft=draft, depth=4))
            print(text["prompt"] + r.choices[0].text)
            print("remote: the target's own answer", r.choices[0].text == alone.choices[0].text)
            print(f"{len(r.meta.parts)} calls:", r.meta.speculation)

            # The draft answers first; its answer is sent as a prediction, verified by the target in one call.
            chat = {**ask, "messages": [{"role": "user", "content": "Write a stack."}]}
            r = client.chat.completions.create(**chat, strategy=Strategy(kind="prediction", draft=draft))
            print("prediction:", r.meta.strategy_reason)
            print(f"{len(r.meta.parts)} calls:", r.meta.speculation)
    finally:
        server.terminate()
