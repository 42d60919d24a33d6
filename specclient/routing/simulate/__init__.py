"""Policies tried out on a world or a trace of calls, by the code that routes live ones."""
