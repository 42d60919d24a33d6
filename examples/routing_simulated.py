"""Compare routing policies in a simulation, with a fixed route and an oracle as references."""

from specclient import Policy
from specclient.routing.simulate.comparison import compare
from specclient.routing.simulate.world import WORLDS, World

world = World(WORLDS["mixed"], seed=1, calls=400)
for policy in (Policy(minimize="cost"), Policy(minimize="latency")):
    found = compare(world, policy)
    print(f"minimize {policy.minimize}:")
    for name, each in (
        ("the router", found.policy),
        ("an oracle", found.oracle),
        (f"always {found.best_fixed.name}", found.best_fixed),
    ):
        cost, missed = 1000 * each.cost, each.violations
        print(f"  {name:25} ${cost:.2f} a thousand, p95 {each.p95_s:.1f} s, {missed:.1%} missed")
