"""Prices of models, dated, and the cost of a call in exact dollars."""
