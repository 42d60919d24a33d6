"""Answers of earlier calls, kept in SQLite, PostgreSQL or Redis for calls that ask the same."""
