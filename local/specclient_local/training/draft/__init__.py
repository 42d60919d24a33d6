"""Train a smaller model to draft for a target."""
