"""Medusa and EAGLE heads: checkpoints, weights and passes."""
