"""``specclient fleet``: replicas of inference servers on a Ray cluster."""
