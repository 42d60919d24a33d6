"""The pools of a fleet: their speed by load, and which of them serves a call."""
