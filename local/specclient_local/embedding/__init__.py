"""Embeddings: sentence-transformers checkpoints, run by the transformers library."""
