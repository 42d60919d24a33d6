"""Failover: further attempts, hedges and resumed streams of one routed call."""
