"""Drafters, which propose the tokens that the target verifies."""
