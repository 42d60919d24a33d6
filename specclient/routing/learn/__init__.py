"""Estimates learned from finished calls: speed, answer length, failures, prediction errors."""
