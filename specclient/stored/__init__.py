"""Responses and conversations of local models, kept in the ledger's database."""
