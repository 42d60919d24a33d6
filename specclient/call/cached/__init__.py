"""Calls that the response cache may answer: their keys, equal calls in flight, answers kept and replayed."""
