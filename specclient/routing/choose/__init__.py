"""Choose a route: options, constraints, scores, and the reasons of a decision."""
