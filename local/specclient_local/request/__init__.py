"""A request: its parameters, its tokens so far, and trees of drafted tokens."""
