"""Load engines: options, memory plan, models, drafters, and the cost calibration of their passes."""
