"""The model: weights, caches, forward passes, and the ways between text, tokens and probabilities."""
