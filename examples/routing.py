"""Let a policy choose the route of a prompt, and read the reason; candidates without a key are skipped."""

from specclient import NoRouteError, OpenAI, Policy

messages = [{"role": "user", "content": "def quicksort(items):\n"}]
candidates = ["local/demo", "local/demo-target", "openai/gpt-4.1-nano"]

with OpenAI(candidates=candidates) as client:
    for policy in (Policy(minimize="latency", allow=("local/",)), Policy(minimize="cost", deny=("openai/",))):
        answer = client.chat.completions.create(
            model="auto", messages=messages, policy=policy, max_tokens=32, temperature=0
        )
        route = answer.meta.route
        print(f"minimize {policy.minimize}: {route.chosen}, {route.reason}")
        for candidate in route.candidates:
            print(f"  {candidate.verdict:<12} {candidate.route:<20} {candidate.reason}")

    try:
        client.chat.completions.create(model="auto", messages=messages, policy=Policy(max_latency_s=0))
    except NoRouteError as error:
        print(error)
