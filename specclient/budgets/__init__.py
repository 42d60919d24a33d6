"""Budgets: limits on the cost of calls."""
