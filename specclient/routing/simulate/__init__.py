"""Simulation of policies on a synthetic world or a trace of calls, with the code of live routing."""
