"""Compare routing policies in a simulation, with a fixed route and an oracle as references."""

from specclient import Policy
from specclient.routing.simulate.comparison import compare
from specclient.routing.simulate.world import WORLDS, World

world = World(WORLDS["mixed"], seed=1, calls=400)
for policy in (Policy(minimize="cost"), Policy(minimize="latency")):
    comparison = compare(world, policy)
    print(f"minimize {policy.minimize}:")
    for name, summary in (
        ("the router", comparison.policy),
        ("an oracle", comparison.oracle),
        (f"always {comparison.best_fixed.name}", comparison.best_fixed),
    ):
        cost, missed = 1000 * summary.cost, summary.violations
        print(f"  {name:25} ${cost:.2f} per 1,000 calls, p95 {summary.p95_s:.1f} s, {missed:.1%} missed")
