"""Training of the bundled pair, of draft models and of heads."""
