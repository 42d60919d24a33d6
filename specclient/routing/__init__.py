"""Routing: estimates of the next call on each route, and the choice among routes by a policy."""
