"""Prices: the user's tables, the genai-prices catalogue, and billing in exact dollars."""
