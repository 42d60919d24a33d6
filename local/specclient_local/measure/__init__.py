"""Measurements of an engine: acceptance, pass times, time per stage, and the speed-up expected by theory."""
