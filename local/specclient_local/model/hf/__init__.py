"""Decoder-only models run by the transformers library."""
