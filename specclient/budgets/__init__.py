"""Budgets: how much a period, a key or a caller may spend, checked before a call is sent."""
